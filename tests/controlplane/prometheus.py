"""Prometheus of the control plane: its configuration, its targets and a query."""

import json
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict


class TargetGroup(TypedDict, total=False):
    """A group as in Prometheus' file_sd and http_sd: "host:port" targets with common labels."""

    targets: Sequence[str]
    labels: Mapping[str, str]


@dataclass(frozen=True)
class PrometheusSettings:
    """How Prometheus scrapes.

    Attributes:
        scrape_interval_s: seconds, whole milliseconds; tests scrape each second to be quick.
        http_sd_urls: discovery endpoints, asked every ``discovery_interval_s`` seconds.
        discovery_interval_s: seconds; files are also watched, their changes count at once.
        retention: Prometheus duration; short, all data is thrown away in the end.
    """

    scrape_interval_s: float = 1.0
    http_sd_urls: tuple[str, ...] = ()
    discovery_interval_s: float = 1.0
    retention: str = "6h"


def duration(seconds: float) -> str:
    """A Prometheus duration.

    >>> duration(1.0), duration(0.25)
    ('1000ms', '250ms')
    """
    return f"{round(seconds * 1000)}ms"


def configuration(settings: PrometheusSettings, targets_folder: Path) -> str:
    """The configuration file, JSON (which is YAML).

    Targets bring their own labels, ``job`` included, as a PodMonitor would give them.
    """
    interval = duration(settings.discovery_interval_s)
    files = {"files": [f"{targets_folder}/*.json"], "refresh_interval": interval}
    endpoints = [{"url": url, "refresh_interval": interval} for url in settings.http_sd_urls]
    # Both jobs stay whatever the settings: the series of a job that is taken away are not marked
    # stale and would answer queries for five more minutes.
    jobs = [
        {"job_name": "files", "file_sd_configs": [files]},
        {"job_name": "http", "http_sd_configs": endpoints},
    ]
    scrape = duration(settings.scrape_interval_s)
    document = {
        "global": {"scrape_interval": scrape, "scrape_timeout": scrape},
        "scrape_configs": jobs,
    }
    return json.dumps(document, indent=2)


def write_targets(folder: Path, name: str, groups: Sequence[TargetGroup]) -> None:
    """Replace the targets registered under a name; an empty list takes them away."""
    # Prometheus watches the folder: a file half written would be an error in its log.
    unfinished = folder / f".{name}.unfinished"
    unfinished.write_text(json.dumps(list(groups)))
    unfinished.replace(folder / f"{name}.json")


def query(base_url: str, expression: str, timeout_s: float = 10.0) -> list[dict[str, Any]]:
    """The ``result`` of an instant query, as Prometheus returns it.

    Raises:
        OSError: Prometheus does not answer, or answers with an HTTP error (bad expression: 400).
    """
    parameters = urllib.parse.urlencode({"query": expression})
    url = f"{base_url}/api/v1/query?{parameters}"
    with urllib.request.urlopen(url, timeout=timeout_s) as response:
        result: list[dict[str, Any]] = json.load(response)["data"]["result"]
        return result
