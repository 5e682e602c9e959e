"""Pytest fixtures: one control plane per session, one namespace per test.

A conftest imports the names: ``from tests.controlplane.fixtures import control_plane, namespace``.
Several conftests may: the plane is kept with the session, not with the fixture's definition.
"""

import contextlib
from collections.abc import Iterator

import pytest

from tests.controlplane.nodes import CPU_ONLY
from tests.controlplane.plane import ControlPlane

COLD_START_S = 1.0
GPU_NODES = 4  # of 8 GPUs each
CPU_NODES = 1

_PLANE = pytest.StashKey[ControlPlane]()


@pytest.fixture(scope="session")
def control_plane(pytestconfig: pytest.Config) -> ControlPlane:
    """Every component ready, with GPU_NODES machines of 8 GPUs and CPU_NODES without."""
    if _PLANE not in pytestconfig.stash:
        # A first start builds for minutes: its progress must be seen, captured output is not.
        with _shown(pytestconfig):
            plane = ControlPlane(cold_start_s=COLD_START_S)
            plane.up()
        pytestconfig.add_cleanup(plane.down)
        plane.add_nodes(GPU_NODES)
        plane.add_nodes(CPU_NODES, CPU_ONLY, prefix="cpu")
        pytestconfig.stash[_PLANE] = plane
    return pytestconfig.stash[_PLANE]


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """Name of a namespace of this test's own; its deletion is asked for at the end, not awaited."""
    name = control_plane.create_namespace()
    yield name
    control_plane.kubectl("delete", "namespace", name, "--wait=false")


def _shown(config: pytest.Config) -> contextlib.AbstractContextManager[None]:
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is None:
        return contextlib.nullcontext()
    shown: contextlib.AbstractContextManager[None] = capture.global_and_fixture_disabled()
    return shown
