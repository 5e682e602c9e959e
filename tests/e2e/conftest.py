"""One control plane a session; Sojourn is installed for each module and taken away after it."""

from collections.abc import Iterator

import pytest

from tests.controlplane.components import LOOPBACK, Component
from tests.controlplane.fixtures import control_plane, namespace
from tests.controlplane.plane import ControlPlane
from tests.controlplane.proxy import Proxy
from tests.e2e.demo import theatre
from tests.e2e.demo.client import Client
from tests.e2e.demo.fleet import Fleet
from tests.e2e.demo.installation import Installation
from tests.e2e.house import House

__all__ = ["control_plane", "house", "namespace"]

NODES = 8
_NODES_ADDED = pytest.StashKey[bool]()


@pytest.fixture(scope="module")
def house(
    request: pytest.FixtureRequest, control_plane: ControlPlane, pytestconfig: pytest.Config
) -> Iterator[House]:
    """Fleet, targets and a running operator under its shipped ServiceAccount.

    It lives at the pace that the module names ``PACE``, if it does.
    """
    if not pytestconfig.stash.get(_NODES_ADDED, False):
        control_plane.add_nodes(NODES, prefix="e2e")
        pytestconfig.stash[_NODES_ADDED] = True
    client = Client(control_plane.kubeconfig)
    ports = control_plane.layout.ports
    with (
        Fleet(client) as fleet,
        Proxy(ports[Component.APISERVER]) as api,
        Proxy(ports[Component.PROMETHEUS]) as prometheus,
    ):
        theatre.connect(control_plane, fleet)
        with Installation(
            control_plane,
            getattr(request.module, "PACE", None),
            api_url=f"https://{LOOPBACK}:{api.port}",
            prometheus_url=f"http://{LOOPBACK}:{prometheus.port}",
        ) as installation:
            yield House(control_plane, client, fleet, installation, api, prometheus)
