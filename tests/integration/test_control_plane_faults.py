"""The control plane when it is hurt, badly asked or abandoned."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane import components
from tests.controlplane.components import Component
from tests.controlplane.errors import ComponentFailed
from tests.controlplane.plane import ControlPlane
from tests.waiting import eventually

REPOSITORY = Path(__file__).parents[2]
SETTLED_S = 30.0


@pytest.fixture
def small_plane() -> Iterator[ControlPlane]:
    """A plane of its own for a test that breaks it."""
    with ControlPlane(components=components.API_ONLY, say=lambda _: None) as plane:
        yield plane


def test_the_api_server_returns_with_its_data_after_stop_kill_and_pause(
    small_plane: ControlPlane,
) -> None:
    name = small_plane.create_namespace("kept")
    server = Component.APISERVER
    for end in (small_plane.stop, small_plane.kill):
        end(server)
        assert "refused" in small_plane.kubectl("get", "ns").stderr
        small_plane.start(server)
        assert small_plane.get("ns", name)["metadata"]["name"] == name
    small_plane.pause(server)
    silent = small_plane.kubectl("get", "ns", "--request-timeout=200ms")
    assert silent.returncode != 0
    small_plane.resume(server)
    assert small_plane.get("ns", name)["metadata"]["name"] == name


def test_a_component_that_cannot_start_shows_its_log_and_leaves_nothing() -> None:
    plane = ControlPlane(
        components=components.API_ONLY, apiserver_flags=["--no-such-flag"], say=lambda _: None
    )
    with pytest.raises(ComponentFailed, match="unknown flag: --no-such-flag"):
        plane.up()
    assert plane.processes == []
    assert not plane.folder.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_the_parent_is_killed(number: signal.Signals) -> None:
    script = (
        "from tests.controlplane.plane import ControlPlane\n"
        "from tests.controlplane.components import API_ONLY\n"
        "with ControlPlane(components=API_ONLY, say=lambda _: None) as plane:\n"
        "    print(plane.folder, *[one.pid for one in plane.processes], flush=True)\n"
        "    input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        folder, *pids = parent.stdout.readline().split()
        assert len(pids) == 2
        parent.send_signal(number)
        assert parent.wait(timeout=SETTLED_S) != 0
    eventually(
        lambda: not any(alive(int(pid)) for pid in pids) and not Path(folder).exists(),
        SETTLED_S,
        "processes and files are gone",
    )


def test_a_detached_plane_runs_on_until_its_command_ends_it() -> None:
    script = (
        "from tests.controlplane.plane import ControlPlane\n"
        "with ControlPlane(components=['etcd'], say=lambda _: None) as plane:\n"
        "    print(plane.folder, plane.processes[0].pid)\n"
        "    print(plane.detach())\n"
    )
    answer = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stderr == ""
    where, command = answer.stdout.splitlines()
    folder, pid = where.split()
    try:
        assert alive(int(pid))
        assert (Path(folder) / "etcd").is_dir()
    finally:
        subprocess.run(command, shell=True, check=True)
    # Without its files etcd would end by itself, but only after half a minute.
    eventually(lambda: not alive(int(pid)), 5.0, "etcd is gone")
    assert not Path(folder).exists()


def alive(pid: int) -> bool:
    # A process that ended but was not yet collected by init still has a number.
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return state.stdout.strip()[:1] not in ("", "Z")
