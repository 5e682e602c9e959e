"""Time and memory of a tick's observation, part by part.

    python -m benchmarks.observe [--services 5000] [--pods 5]

The fleet and its Prometheus are those of ``benchmarks.tick``, which measures the whole: here each
part of gathering is run by itself.
"""

from __future__ import annotations

import argparse
import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

from benchmarks import servers
from benchmarks.fleet import SCRAPE, Fleet
from benchmarks.tick import read, resident_mib
from sojourn import engines
from sojourn.catalogue import Catalogue
from sojourn.facts.declaration import Declaration
from sojourn.observe.cluster import WATCHED, ClusterState
from sojourn.observe.evidence import Evidence, add_answer
from sojourn.observe.gather import Gatherer
from sojourn.observe.prometheus import PrometheusSource
from sojourn.observe.queries import Question, questions
from sojourn.observe.quiet_collector import collect_seldom
from sojourn.observe.settings import PrometheusSettings
from sojourn.observe.signals import View, engine_signals

KINDS = 20


def phase(name: str, work: Callable[[], Any]) -> Any:
    """Print the CPU and wall time of one phase; returns what the work returns."""
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    found = work()
    tell(name, time.process_time() - cpu_s, time.perf_counter() - wall_s)
    return found


def tell(name: str, cpu_s: float, wall_s: float) -> None:
    print(f"{name:<44} {cpu_s:>8.2f} {wall_s:>8.2f} {resident_mib():>8.0f}")


def watched(fleet: Fleet) -> ClusterState:
    """The cluster as the watches tell it."""
    cluster, events = ClusterState(), list(fleet.events())

    def take_in() -> None:
        for event in events:
            cluster.apply(*event)
        for kind in WATCHED:
            cluster.mark_synced(kind)

    phase(f"take in {len(events)} watch events", take_in)
    return cluster


async def answered(
    source: PrometheusSource, asked: dict[Question, str], now_s: float
) -> dict[Question, Any]:
    """Every question's series."""
    found: dict[Question, Any] = {}
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    for question, expression in asked.items():
        found[question] = await source.query(expression, now_s)
    series = sum(map(len, found.values()))
    spent = (time.process_time() - cpu_s, time.perf_counter() - wall_s)
    tell(f"receive and parse {series} series", *spent)
    return found


def parts(
    cluster: ClusterState, services: list[Declaration], found: dict[Question, Any], now_s: float
) -> None:
    """Index the answers and read them for every service."""
    evidence = Evidence(now_s)

    def index() -> None:
        for question, answer in found.items():
            add_answer(evidence, question, answer, SCRAPE)

    phase("index them by pod and workload", index)
    pods = phase("pods of each service", lambda: [cluster.pods_of(d) for d in services])
    phase("target states, flags read anew", lambda: [cluster.target_state(d) for d in services])
    phase("target states", lambda: [cluster.target_state(d) for d in services])
    phase("quotas", lambda: [cluster.quota_replicas(d) for d in services])
    known = [engines.find(d.engine.name) for d in services]
    views = [View(e, p, evidence, SCRAPE) for e, p in zip(known, pods, strict=True)]
    phase("signals", lambda: [engine_signals(view) for view in views])


async def run(fleet: Fleet, prometheus: servers.Process) -> None:
    cluster = watched(fleet)
    services = [e.declaration for e in fleet.entries if e.declaration is not None]
    source = PrometheusSource(PrometheusSettings(prometheus.url, timeout_s=60))
    now_s = time.time()
    prometheus.ask((fleet.loads(), now_s))
    asked = questions(frozenset(d.engine.name for d in services), SCRAPE)
    parts(cluster, services, await answered(source, asked, now_s), now_s)
    gatherer = Gatherer(cluster, source, SCRAPE)
    for tick in range(3):
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        observed = await gatherer.gather(services, {}, now_s)
        spent = (time.process_time() - cpu_s, time.perf_counter() - wall_s)
        tell(f"gather, tick {tick + 1}, {len(observed)} services", *spent)
    print(f"queries a tick: {len(asked)}; threads: {threading.active_count()}")
    source.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--services", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=5)
    options = parser.parse_args()
    collect_seldom()
    registry = read(options.services, KINDS, Catalogue())
    fleet = Fleet(list(registry.entries()), options.pods)
    print(f"{options.services} services of {options.pods} pods")
    print(f"{'phase':<44} {'CPU s':>8} {'wall s':>8} {'MiB':>8}")
    with servers.prometheus() as prometheus:
        asyncio.run(run(fleet, prometheus))


if __name__ == "__main__":
    main()
