"""One program of the control plane: started, watched, hurt and stopped."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.controlplane.errors import ComponentFailed
from tests.controlplane.reaper import Reaper

STOP_TIMEOUT_S = 20.0  # the API server lets open requests end; longer than that it is killed
TAIL_BYTES = 4000


@dataclass(frozen=True)
class ProcessInfo:
    """A look at a running program. ``resident_bytes`` is None where /proc does not exist."""

    name: str
    pid: int
    resident_bytes: int | None


class ManagedProcess:
    """A program in a process group of its own, restartable with the same command.

    Its output is appended to ``log``. The reaper kills the group if this process dies first.
    """

    def __init__(
        self, name: str, command: Sequence[str], log: Path, env: Mapping[str, str], reaper: Reaper
    ) -> None:
        self.name = name
        self.log = log
        self._command = list(command)
        self._env = dict(env)
        self._reaper = reaper
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended; a paused program is running."""
        return self._process is not None and self._process.poll() is None

    @property
    def info(self) -> ProcessInfo | None:
        """Its process id and memory; None when it is not running."""
        if self._process is None or not self.running:
            return None
        return ProcessInfo(self.name, self._process.pid, resident_bytes(self._process.pid))

    def start(self) -> None:
        """Start the program.

        Raises:
            ComponentFailed: it is running already.
        """
        if self.running:
            raise ComponentFailed(self.name, "is running already", self.log_tail())
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._env,
                cwd=self.log.parent,
                process_group=0,
            )
        self._reaper.watch(self._process.pid)

    def stop(self) -> None:
        """End it with SIGTERM, after STOP_TIMEOUT_S with SIGKILL; nothing if it is not running."""
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)  # a paused process acts on SIGTERM only once it runs again
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=STOP_TIMEOUT_S)
        self.kill()

    def kill(self) -> None:
        """End it with SIGKILL and wait until it is gone; nothing if it is not running."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
            self._reaper.forget(self._process.pid)
            self._process = None

    def detach(self) -> None:
        """Let it run on when this process ends."""
        if self._process is not None:
            # Popen warns about a child that is still running when it is collected.
            self._process.returncode = 0
            self._process = None

    def pause(self) -> None:
        """Freeze it with SIGSTOP: connections stay open and nobody answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Undo ``pause``."""
        self._signal(signal.SIGCONT)

    def fail_if_ended(self) -> None:
        """Raises ComponentFailed, with the end of the log, when the program is not running."""
        if not self.running:
            code = None if self._process is None else self._process.returncode
            raise ComponentFailed(self.name, f"ended with exit code {code}", self.log_tail())

    def log_tail(self) -> str:
        """The last lines of its log, about 4 kB."""
        if not self.log.exists():
            return "(no log)"
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - TAIL_BYTES))
            return file.read().decode(errors="replace")

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)


def resident_bytes(pid: int) -> int | None:
    """Resident memory of a process in bytes; None when the system does not tell."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    for line in status.splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return None
