"""What the demo and the tests stand on: Prometheus' targets and the objects of the examples."""

from pathlib import Path

import yaml

from tests.controlplane.access import Access
from tests.controlplane.prometheus import PrometheusSettings
from tests.e2e.demo.fleet import Fleet
from tests.waiting import eventually

MANIFESTS = Path(__file__).with_name("manifests")
COLD_START_S = 3.0
READY_S = 60.0
GPU_NODES = 8


def connect(plane: Access, fleet: Fleet, scrape_s: float = 0.5) -> None:
    """Let Prometheus find the fleet's pods."""
    plane.prometheus_configure(
        PrometheusSettings(scrape_interval_s=scrape_s, http_sd_urls=(fleet.targets_url,))
    )


def manifests(plane: Access, *names: str) -> str:
    """The shipped examples at the demo's pace, as YAML.

    Args:
        names: only objects of these names; none means all.
    """
    rendered = plane.kubectl(
        "kustomize", "--load-restrictor=LoadRestrictionsNone", str(MANIFESTS), check=True
    ).stdout
    documents = [d for d in yaml.safe_load_all(rendered) if d]
    kept = [d for d in documents if not names or d["metadata"]["name"] in names]
    return yaml.safe_dump_all(kept)


def apply(plane: Access, namespace: str, text: str) -> str:
    """``kubectl apply`` of a text; what kubectl printed."""
    return plane.kubectl("apply", "-n", namespace, "-f", "-", input=text, check=True).stdout


def await_serving(fleet: Fleet, namespace: str, *apps: str) -> None:
    """Wait until every service has a pod in its router."""
    fronts = [fleet.front((namespace, app)) for app in apps]
    eventually(lambda: all(front.ready for front in fronts), READY_S, f"{', '.join(apps)} serve")
