"""Build a program with Go from the module proxy, pinned by ``build/<folder>/go.mod`` and go.sum."""

import os
import shutil
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from tests.controlplane.errors import ControlPlaneError
from tests.controlplane.programs import GoBuild, Program

BUILD_FOLDER = Path(__file__).parent / "build"
HEARTBEAT_S = 20.0  # how often a build reports that it is alive

Say = Callable[[str], None]


class GoBuildFailed(ControlPlaneError):
    """Go is missing, or its build ended with an error."""


def build(program: Program, target: Path, say: Say) -> float:
    """Build the program to ``target``; returns the seconds it took.

    Args:
        target: its folder must exist; replaced atomically at the end.
        say: receives a line every HEARTBEAT_S.

    Raises:
        GoBuildFailed: with what to do, or with the last lines Go printed.
    """
    go = shutil.which("go")
    if go is None:
        raise GoBuildFailed("build with Go: no `go` on PATH; install Go 1.26 or newer")
    began_s = time.monotonic()
    unfinished = target.with_name(f".{target.name}.build-{os.getpid()}")
    command = [*_nicely(), go, "build", *_flags(program.build), "-o", str(unfinished)]
    try:
        _run([*command, program.build.package], program, say)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
    return time.monotonic() - began_s


def _nicely() -> list[str]:
    # The build takes every core for minutes; whoever waits for it still wants a usable machine.
    nice = shutil.which("nice")
    return [nice] if nice else []


def _flags(build: GoBuild) -> list[str]:
    stamps = " ".join(f"-X {variable}={value}" for variable, value in build.stamps)
    # -v prints each compiled package: the count is the only sign of progress Go gives.
    flags = ["-v", "-trimpath", "-ldflags", f"-s -w {stamps}".strip()]
    return [*flags, "-tags", build.tags] if build.tags else flags


def _environment() -> dict[str, str]:
    # A developer's workspace or vendoring flags belong to other modules.
    return {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}


def _run(command: list[str], program: Program, say: Say) -> None:
    began_s = time.monotonic()
    lines: deque[str] = deque(maxlen=20)
    compiled = 0

    def follow(stream: "subprocess.Popen[str]") -> None:
        nonlocal compiled
        assert stream.stderr is not None
        for line in stream.stderr:
            lines.append(line.rstrip())
            compiled += 1

    with subprocess.Popen(
        command,
        cwd=BUILD_FOLDER / program.build.folder,
        env=_environment(),
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        reader = threading.Thread(target=follow, args=(process,), daemon=True)
        reader.start()
        try:
            while True:
                try:
                    process.wait(timeout=HEARTBEAT_S)
                    break
                except subprocess.TimeoutExpired:
                    elapsed_s = time.monotonic() - began_s
                    say(f"  {program.name}: {compiled} packages compiled, {elapsed_s:.0f} s")
        except BaseException:
            process.terminate()
            raise
        finally:
            reader.join(timeout=5)
    if process.returncode != 0:
        tail = "\n".join(f"      {line}" for line in lines)
        raise GoBuildFailed(f"build with Go: `go build` ended with {process.returncode}:\n{tail}")
