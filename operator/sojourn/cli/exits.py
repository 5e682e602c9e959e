"""Exit codes, and errors as one line: what is wrong, by how much, what to do."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable

from sojourn.errors import ClusterUnavailable, MetricsUnavailable, SojournError

OK = 0
VERDICT = 1
USAGE = 2
UNREACHABLE = 3
INTERNAL = 70
INTERRUPTED = 130

MEANING = {
    OK: "done; for a question about a service: it works as asked",
    VERDICT: "answered, and the answer is no: it would not start, is unstable, cannot meet its"
    " SLO, or a check failed",
    USAGE: "the command, a file or an object cannot be read",
    UNREACHABLE: "a cluster, Prometheus or endpoint gave no usable answer",
    INTERNAL: "a fault of sojourn itself; --debug shows where",
    INTERRUPTED: "interrupted; what was measured until then has been shown or written",
}
"""For ``sojourn --help`` and the reference page."""

DEBUG_VARIABLE = "SOJOURN_DEBUG"


class UsageError(SojournError):
    """What was asked for cannot be done as it was asked."""


class EndpointUnavailable(SojournError):
    """An inference endpoint gave no usable answer."""


def guarded(main: Callable[[], None], debug: bool) -> int:
    """Run ``main``; the exit code of what it raised, its message on standard error."""
    try:
        main()
    except SojournError as exc:
        _tell(str(exc), debug)
        return code_of(exc)
    except KeyboardInterrupt:
        print("sojourn: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has seen enough (`| head`); closing again at exit would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except Exception as exc:  # every other exception is a fault of ours
        _tell(f"fault in sojourn: {type(exc).__name__}: {exc}; --debug shows where", debug)
        return INTERNAL
    return OK


def code_of(error: SojournError) -> int:
    """Exit code of an expected error."""
    unreachable = (ClusterUnavailable, MetricsUnavailable, EndpointUnavailable)
    return UNREACHABLE if isinstance(error, unreachable) else USAGE


def _tell(text: str, debug: bool) -> None:
    if debug:
        traceback.print_exc()
    for line in text.splitlines() or [""]:
        print(f"sojourn: {line}", file=sys.stderr)
