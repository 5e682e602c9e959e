"""Field cases about what is shipped and what is written: manifests, queries, times."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from sojourn.api import status as status_api
from tests.unit.api import plans

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "deploy" / "examples"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")


@pytest.fixture
def far_east() -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = "Asia/Tokyo"
    time.tzset()
    yield
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


@pytest.mark.usefixtures("far_east")
def test_every_time_in_a_status_is_utc_wherever_the_operator_runs() -> None:
    """FC-140."""
    text = yaml.safe_dump(status_api.status(plans.plan(), {}, plans.NOW))
    stamps = TIME.findall(text)
    assert stamps
    assert all(f"{stamp}Z" in text for stamp in stamps)
    assert datetime.fromtimestamp(plans.AT_S, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") in text


def test_shipped_queries_of_the_desired_replicas_pick_one_value_of_one_object() -> None:
    """FC-084: two installations that serve one object are never added up."""
    (scaled,) = yaml.safe_load_all((EXAMPLES / "metric-keda.yaml").read_text())
    (trigger,) = scaled["spec"]["triggers"]
    query = 'max(sojourn_desired_replicas{namespace="default",name="chat"})'
    assert trigger["metadata"]["query"] == query
    guide = (ROOT / "docs/how-to/hpa-and-keda.md").read_text()
    assert "max by (name) (<<.Series>>{<<.LabelMatchers>>})" in guide


def test_shipped_workloads_leave_replicas_out_and_the_guide_shows_how_syncers_ignore_them() -> None:
    """FC-092."""
    for path in EXAMPLES.glob("*.yaml"):
        for body in yaml.safe_load_all(path.read_text()):
            assert body["kind"] != "Deployment" or "replicas" not in body["spec"]
    guide = (ROOT / "docs/how-to/gitops.md").read_text()
    assert "managedFieldsManagers: [sojourn-scale, sojourn-batch]" in guide
    assert "ignoreDifferences" in guide
    assert "driftDetection" in guide
