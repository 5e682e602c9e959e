"""One control plane a session; Sojourn is installed for each module and taken away after it."""

from collections.abc import Iterator

import pytest

from tests.controlplane.fixtures import control_plane, namespace
from tests.controlplane.plane import ControlPlane
from tests.e2e.demo import theatre
from tests.e2e.demo.client import Client
from tests.e2e.demo.fleet import Fleet
from tests.e2e.demo.installation import Installation
from tests.e2e.house import House

__all__ = ["control_plane", "house", "namespace"]

NODES = 8
_NODES_ADDED = pytest.StashKey[bool]()


@pytest.fixture(scope="module")
def house(control_plane: ControlPlane, pytestconfig: pytest.Config) -> Iterator[House]:
    """Fleet, targets and a running operator under its shipped ServiceAccount."""
    if not pytestconfig.stash.get(_NODES_ADDED, False):
        control_plane.add_nodes(NODES, prefix="e2e")
        pytestconfig.stash[_NODES_ADDED] = True
    client = Client(control_plane.kubeconfig)
    with Fleet(client) as fleet:
        theatre.connect(control_plane, fleet)
        with Installation(control_plane) as installation:
            yield House(control_plane, client, fleet, installation)
