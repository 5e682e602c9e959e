"""A fake Prometheus for the tests of this room."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.observe import fake_prometheus
from tests.unit.observe.fake_prometheus import FakePrometheus


@pytest.fixture
def prometheus() -> Iterator[FakePrometheus]:
    """Listening on the loopback; answers an empty vector until told otherwise."""
    with fake_prometheus.running() as fake:
        yield fake
