"""The settings file: every key has its unit, and what is wrong is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from sojourn.controller.settings import load
from sojourn.errors import InvalidObject

ROOT = Path(__file__).resolve().parents[3]


def written(folder: Path, text: str) -> Path:
    path = folder / "settings.yaml"
    path.write_text(text)
    return path


def test_the_shipped_settings_are_read() -> None:
    settings = load(ROOT / "deploy/base/settings.yaml")
    assert settings.tick == 15.0
    assert settings.policy().rate_window_s == 60.0
    assert not settings.policy().fixed_gpus
    assert settings.prometheus.source().timeout_s == 10.0


def test_every_key_reaches_what_uses_it(tmp_path: Path) -> None:
    settings = load(
        written(
            tmp_path,
            """
prometheus:
  url: https://mimir.example.com/prometheus
  headers: {X-Scope-OrgID: team}
  scrapeInterval: 5s
  window: 30s
  namespaceLabel: exported_namespace
  replicaLabels: [replica]
  minCoveragePercent: 50
  customQueries: false
thresholds: {lowUtilizationPercent: 40, batchPatience: 1m30s}
capacity: {gpuPool: Fixed}
""",
        )
    )
    scrape = settings.prometheus.scrape()
    assert scrape.namespace_label == "exported_namespace"
    assert scrape.replica_labels == ("replica",)
    assert scrape.min_coverage == 0.5
    assert settings.prometheus.source().headers == (("X-Scope-OrgID", "team"),)
    policy = settings.policy()
    assert (policy.low_utilisation, policy.batch_patience_s) == (0.4, 90.0)
    assert not policy.free_queries
    assert policy.fixed_gpus


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("prometheus: {url: 'http://p'}\ntick: 15\n", "tick"),
        ("prometheus: {url: 'http://p'}\ntick: -1s\n", "tick"),
        ("prometheus: {url: 'http://p', urll: x}\n", "prometheus.urll"),
        ("prometheus: {url: 'http://user:pw@p'}\n", "credentials belong in files"),
        ("prometheus: {url: 'p:9090'}\n", "http"),
        ("tick: 15s\n", "prometheus"),
        ("prometheus: {url: 'http://p'}\ncapacity: {gpuPool: Full}\n", "gpuPool"),
        (
            "prometheus: {url: 'http://p'}\nthresholds: {lowUtilizationPercent: 90}\n",
            "low and high utilisation",
        ),
        ("[", "settings.yaml"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(InvalidObject) as caught:
        load(written(tmp_path, text))
    assert named in str(caught.value)
    assert "pw" not in str(caught.value)
