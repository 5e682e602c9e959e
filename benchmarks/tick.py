"""Time and memory of whole ticks of thousands of services, by phase.

    python -m benchmarks.tick [--services 5000] [--kinds 200] [--ticks 24] [--noise 0.05]

The operator's own corridor runs in one process: it asks a Prometheus on the loopback, unpacks and
parses the answers, joins them with the cluster in memory, decides, renders statuses and writes
what is due to an API server on the loopback. Those two are processes of their own; so is the time
of whoever brings watch events. Every service's rate and latencies move by up to 5 % each tick,
each on its own.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import resource
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from kubernetes.aio import client

from benchmarks import servers
from benchmarks.fleet import SCRAPE, Fleet, body
from sojourn.act.execute import Applied, Executor
from sojourn.act.kube import Kube
from sojourn.catalogue import Catalogue
from sojourn.controller.own_metrics import OwnMetrics
from sojourn.controller.registry import Entry, Registry
from sojourn.controller.tick import Corridor
from sojourn.facts.plan import Plan
from sojourn.facts.policy import Policy
from sojourn.observe.cluster import WATCHED, ClusterState
from sojourn.observe.gather import Gatherer
from sojourn.observe.prometheus import PrometheusSource
from sojourn.observe.quiet_collector import collect_seldom
from sojourn.observe.settings import PrometheusSettings

START_S = 1_790_000_000.0
TICK_S = 15.0
REPLICAS = 4
WARM_AFTER = 4
"""Ticks until every service has its replicas and every figure is solved."""

GOAL_CPU_S = 5.0
GOAL_MIB = 600.0
PHASES = ("gather", "decide", "render", "write")


@dataclass(frozen=True)
class Timed(Corridor):
    """The corridor, with the CPU time that rendering takes out of carrying out."""

    rendering_s: list[float] = field(default_factory=list)

    def status_of(self, entry: Entry, plan: Plan, now_s: float) -> Mapping[str, Any] | None:
        begun_s = time.thread_time()
        try:
            return super().status_of(entry, plan, now_s)
        finally:
            self.rendering_s.append(time.thread_time() - begun_s)


@dataclass(frozen=True)
class Measured:
    """One tick: CPU seconds by phase, and how much was written."""

    seconds: dict[str, float]
    statuses: int
    scaled: int

    @property
    def total_s(self) -> float:
        return sum(self.seconds.values())


async def one_tick(corridor: Timed, now_s: float) -> tuple[dict[str, float], list[Applied]]:
    """What ``Corridor.tick`` does, with a clock between the phases."""
    corridor.rendering_s.clear()
    marks = [time.process_time()]
    entries = list(corridor.registry.entries())
    observations = await corridor.observe(entries, now_s)
    marks.append(time.process_time())
    plans = await asyncio.to_thread(corridor.plans, entries, observations, now_s)
    marks.append(time.process_time())
    applied = await corridor.carry_out(entries, plans, now_s)
    marks.append(time.process_time())
    gather_s, decide_s, rest_s = (end - begin for begin, end in pairwise(marks))
    render_s = sum(corridor.rendering_s)
    spent = (gather_s, decide_s, render_s, rest_s - render_s)
    return dict(zip(PHASES, spent, strict=True)), applied


def read(services: int, kinds: int, names: Catalogue) -> Registry:
    """A registry that has read so many services."""
    registry = Registry(names)
    for number in range(services):
        registry.put(body(number, number % kinds), START_S - 86_400)
    return registry


def scale(fleet: Fleet, cluster: ClusterState, applied: Iterable[Applied]) -> None:
    """Let the cluster do what was written."""
    for done in applied:
        after, service = done.plan.decision.after.replicas, done.plan.service
        if done.scaled and after is not None and service is not None:
            engine = service.declaration.engine.name
            for event in fleet.scale(done.plan.ref.key, engine, after):
                cluster.apply(*event)


def resident_mib() -> float:
    """Largest resident memory so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def run(options: argparse.Namespace, urls: tuple[str, str], loads: servers.Process) -> None:
    names, cluster = Catalogue(), ClusterState()
    begun_s = time.process_time()
    registry = read(options.services, options.kinds, names)
    read_s, begun_s = time.process_time() - begun_s, time.process_time()
    entries = list(registry.entries())
    print(f"read {read_s:.2f}  resolve {time.process_time() - begun_s:.2f}")
    fleet = Fleet(entries, REPLICAS, options.noise)
    for event in fleet.events():
        cluster.apply(*event)
    for kind in WATCHED:
        cluster.mark_synced(kind)
    gc.collect()
    gc.freeze()  # as the operator does once the first lists are complete
    source = PrometheusSource(PrometheusSettings(urls[0], timeout_s=60))
    kube = Kube(client.Configuration(host=urls[1]), timeout_s=60)
    corridor = Timed(
        registry, Gatherer(cluster, source, SCRAPE), Executor(kube, lambda: True, "benchmark"),
        Policy(), names.gpus(), OwnMetrics(),
    )  # fmt: skip
    heads = "".join(f"{name:>8}" for name in (*PHASES, "sum", "status", "scale", "pods", "MiB"))
    print(f"{'tick':<6}{heads}")
    measured: list[Measured] = []
    for number in range(options.ticks):
        now_s = START_S + number * TICK_S
        loads.ask((fleet.loads(), now_s))
        seconds, applied = await one_tick(corridor, now_s)
        statuses = sum(done.status is not None for done in applied)
        scaled = sum(done.scaled for done in applied)
        measured.append(Measured(seconds, statuses, scaled))
        scale(fleet, cluster, applied)
        show(number, measured[-1], sum(fleet.running.values()))
    tell(measured)
    source.close()
    await kube.close()


def show(number: int, tick: Measured, pods: int) -> None:
    name = "cold" if number == 0 else f"{number + 1}"
    seconds = "".join(f"{tick.seconds[phase]:>8.2f}" for phase in PHASES)
    print(f"{name:<6}{seconds}{tick.total_s:>8.2f}{tick.statuses:>8}{tick.scaled:>8}{pods:>8}"
          f"{resident_mib():>8.0f}", flush=True)  # fmt: skip


def tell(measured: list[Measured]) -> None:
    """The two first ticks and the mean of the warm ones, beside their goals."""
    warm = measured[WARM_AFTER:] or measured[-1:]
    mean_s = sum(tick.total_s for tick in warm) / len(warm)
    statuses = sum(tick.statuses for tick in warm) / len(warm)
    begun_s = sum(tick.total_s for tick in measured[:2])
    print(f"first two ticks {begun_s:.1f} CPU s; warm tick {mean_s:.2f} (goal {GOAL_CPU_S:g}), "
          f"{statuses:.0f} statuses; {resident_mib():.0f} MiB (goal {GOAL_MIB:g})")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--services", type=int, default=5000)
    parser.add_argument("--kinds", type=int, default=200)
    parser.add_argument("--ticks", type=int, default=24)
    parser.add_argument("--noise", type=float, default=0.05)
    options = parser.parse_args()
    collect_seldom()
    print(f"{options.services} services of {options.kinds} kinds; CPU seconds, one process")
    with servers.prometheus() as prometheus, servers.apiserver() as api:
        asyncio.run(run(options, (prometheus.url, api.url), prometheus))


if __name__ == "__main__":
    main()
