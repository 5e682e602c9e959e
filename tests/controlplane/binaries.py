"""Find every program of the control plane, or make it: ``python -m tests.controlplane.binaries``.

Order: the directories in KUBEBUILDER_ASSETS and SOJOURN_BIN, the user cache, PATH, the official
release (checksum verified), a build with Go. A program of the wrong version is passed over, with a
note. What is downloaded or built stays in the cache and is never made twice.
"""

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.controlplane import gobuild
from tests.controlplane.download import Downloader
from tests.controlplane.errors import BinaryUnavailable, ControlPlaneError, DownloadRefused
from tests.controlplane.gobuild import Say
from tests.controlplane.programs import PROGRAMS, Program, parse_version

DIRECTORY_VARIABLES = ("KUBEBUILDER_ASSETS", "SOJOURN_BIN")
_VERSION = re.compile(r"\bv?(\d+\.\d+\.\d+)")


@dataclass(frozen=True)
class Binary:
    name: str
    version: str  # "1.37.2"
    path: Path
    source: str  # "SOJOURN_BIN", "cache", "PATH", "downloaded in 12 s", "built in 412 s"


def cache_folder() -> Path:
    """``${XDG_CACHE_HOME:-~/.cache}/sojourn/bin``."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "sojourn" / "bin"


def say_to_stderr(line: str) -> None:
    """Print a progress line at once, apart from the table on standard output."""
    print(line, file=sys.stderr, flush=True)


def ensure(names: Iterable[str] | None = None, say: Say = say_to_stderr) -> dict[str, Binary]:
    """Every named program (all when None), by name; makes what is missing.

    Args:
        say: receives progress, one line per program made and one every 20 s of a build.

    Raises:
        BinaryUnavailable: a program could be neither found nor made; the message says how to help.
        KeyError: a name that is no program of the control plane.
    """
    known = {program.name: program for program in PROGRAMS}
    wanted = set(known) if names is None else set(names)
    if unknown := wanted - set(known):
        raise KeyError(f"no such program: {', '.join(sorted(unknown))}")
    downloader = Downloader()
    found: dict[str, Binary] = {}
    for program in PROGRAMS:
        if program.name in wanted:
            found[program.name] = _find(program, say) or _make(program, downloader, say)
    return found


def _find(program: Program, say: Say) -> Binary | None:
    for variable in DIRECTORY_VARIABLES:
        for directory in filter(None, os.environ.get(variable, "").split(os.pathsep)):
            binary = _accepted(program, Path(directory) / program.name, variable, say)
            if binary:
                return binary
    if cached := _cached(program):
        return cached
    on_path = shutil.which(program.name)
    return _accepted(program, Path(on_path), "PATH", say) if on_path else None


def _cached(program: Program) -> Binary | None:
    # Only a finished program of exactly this version is ever renamed to this path.
    path = cache_folder() / program.key / program.name
    return Binary(program.name, program.version, path, "cache") if path.is_file() else None


def _accepted(program: Program, path: Path, source: str, say: Say) -> Binary | None:
    if not (path.is_file() and os.access(path, os.X_OK)):
        return None
    version = reported_version(path, program.version_arguments)
    if version is None or not program.accepts(parse_version(version)):
        say(f"{program.name}: passing over {path}: version {version or 'unknown'}")
        return None
    return Binary(program.name, version, path, source)


def reported_version(path: Path, arguments: tuple[str, ...]) -> str | None:
    """The first version that the program prints when asked, without v; None if it prints none."""
    try:
        answer = subprocess.run(
            [path, *arguments], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(answer.stdout + answer.stderr)
    return match.group(1) if match else None


def _make(program: Program, downloader: Downloader, say: Say) -> Binary:
    target = cache_folder() / program.key / program.name
    target.parent.mkdir(parents=True, exist_ok=True)
    with _only_one(cache_folder() / f"{program.key}.lock", say):
        # Another process may have made it while this one waited for the lock.
        if cached := _cached(program):
            return cached
        tried: list[str] = []
        if program.release is None:
            tried.append("download: no release for this platform")
        else:
            try:
                took_s = downloader.fetch(program.release, target)
                return _made(program, target, f"downloaded in {took_s:.0f} s", say)
            except DownloadRefused as error:
                tried.append(f"download: {error}")
        say(f"{program.name} {program.version}: building with Go (once, then cached)")
        try:
            took_s = gobuild.build(program, target, say)
            return _made(program, target, f"built in {took_s:.0f} s", say)
        except gobuild.GoBuildFailed as error:
            tried.append(str(error))
        raise BinaryUnavailable(program.name, program.version, tried)


def _made(program: Program, target: Path, source: str, say: Say) -> Binary:
    say(f"{program.name} {program.version}: {source}")
    return Binary(program.name, program.version, target, source)


@contextlib.contextmanager
def _only_one(lock: Path, say: Say) -> Iterator[None]:
    """Hold an advisory lock; the kernel frees it if this process dies."""
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that is making {lock.stem}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def table(binaries: Iterable[Binary]) -> str:
    """Name, version, source and path of each program, aligned."""
    rows = [("name", "version", "source", "path")]
    rows += [(b.name, b.version, b.source, str(b.path)) for b in binaries]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]])
        for row in rows
    )


def main() -> int:
    """Ensure everything and print the table; 1 and a message when something is missing."""
    try:
        binaries = ensure()
    except ControlPlaneError as error:
        print(error, file=sys.stderr)
        return 1
    print(table(binaries.values()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
