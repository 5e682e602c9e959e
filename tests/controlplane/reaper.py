"""A process that outlives its parent just long enough to clean up after it.

Started with a pipe on standard input, it is told which process groups and which folder belong to
the parent. When the pipe closes - because the parent closed it, or because it died in whatever way,
SIGKILL included - every group still watched is killed and the folder removed.

A parent-death signal would be simpler, but the kernel ties it to the thread that started the child:
a program started from a worker thread would die with that thread.

Lines: ``watch PGID``, ``forget PGID``, ``remove FOLDER``, ``release``. It imports nothing of the
project, for it runs isolated (``python -I``).
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path


class Reaper:
    """The parent's side. Use as a context manager; leaving it lets the reaper do its work."""

    def __init__(self) -> None:
        # Its own session: Ctrl-C goes to the parent's process group and must not end the reaper.
        self._process = subprocess.Popen(
            [sys.executable, "-I", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        )

    def watch(self, group: int) -> None:
        self._tell(f"watch {group}")

    def forget(self, group: int) -> None:
        self._tell(f"forget {group}")

    def remove(self, folder: Path) -> None:
        """Have the folder removed, after every watched group was killed."""
        self._tell(f"remove {folder}")

    def release(self) -> None:
        """Leave alone everything named so far."""
        self._tell("release")

    def finish(self) -> None:
        """Close the pipe and wait until everything still watched is gone."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        # A reaper that was killed can protect nothing; the run itself need not fail for that.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()


def serve(lines: Iterable[str]) -> None:
    """Follow the parent's lines until they end, then kill and remove what is left."""
    groups: set[int] = set()
    folders: list[str] = []
    for line in lines:
        verb, _, argument = line.rstrip("\n").partition(" ")
        if verb == "watch":
            groups.add(int(argument))
        elif verb == "forget":
            groups.discard(int(argument))
        elif verb == "remove":
            folders.append(argument)
        elif verb == "release":
            groups.clear()
            folders.clear()
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    for folder in folders:
        # A killed process may still be writing for a moment; what it leaves is taken by the retry.
        for _ in range(20):
            shutil.rmtree(folder, ignore_errors=True)
            if not Path(folder).exists():
                break


if __name__ == "__main__":
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    serve(sys.stdin)
