"""Time and memory of a tick's decisions: thousands of services, observation given as data.

    python -m benchmarks.tick [--services 5000] [--kinds 200] [--ticks 4]

Resolving, deciding and rendering are the operator's own code; nothing is sent. What Prometheus'
answers cost is printed by ``python -m benchmarks.observe``; ``make bench-tick`` runs both.
"""

from __future__ import annotations

import argparse
import random
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from sojourn.act.execute import Applied
from sojourn.api import status as status_api
from sojourn.catalogue import Catalogue
from sojourn.controller import past as past_of
from sojourn.controller.own_metrics import OwnMetrics
from sojourn.controller.registry import Entry, Registry
from sojourn.controller.tick import Corridor
from sojourn.facts.plan import Plan
from sojourn.facts.policy import Policy
from sojourn.facts.reading import Known
from sojourn.facts.situation import Observation, Signals, TargetState

T = TypeVar("T")
Key = tuple[str, str]

START_S = 1_790_000_000.0
TICK_S = 15.0
MODELS = ("meta-llama/Llama-3.1-8B-Instruct", "mistralai/Mistral-7B-v0.1", "Qwen/Qwen2.5-7B")
GPUS = ("A100-80GB", "H100-80GB")
GOAL_CPU_S = 5.0
GOAL_MIB = 600.0


@dataclass
class Clock:
    """CPU seconds by phase."""

    seconds: dict[str, float] = field(default_factory=dict)

    def phase(self, name: str, work: Callable[[], T]) -> T:
        """Run and count one phase."""
        begun = time.process_time()
        found = work()
        self.seconds[name] = time.process_time() - begun
        return found


def body(number: int, kind: int) -> dict[str, Any]:
    """One InferenceService; services of one kind differ only in name."""
    chance = random.Random(kind)
    spec: dict[str, Any] = {
        "model": {"name": chance.choice(MODELS), "maxLength": 8192},
        "gpu": {"type": chance.choice(GPUS)},
        "slo": {"latency": f"{chance.randint(8, 30)}s"},
        "scaleTargetRef": {"name": f"service-{number}"},
        "traffic": {
            "peakRate": chance.randint(10, 60),
            "promptTokens": {"mean": chance.randint(200, 2000)},
            "outputTokens": {"mean": chance.randint(100, 400)},
        },
        "engine": {"maxBatchSize": {"min": 4, "max": 64}},
        "scaling": {"maxReplicas": 20},
    }
    if kind % 4 == 0:  # every fourth collects batches, as a classifier does
        spec["engine"] = {
            "name": "triton", "maxBatchSize": {"min": 1, "max": 32}, "maxBatchWait": "5ms",
        }  # fmt: skip
        spec["slo"] = {"latency": f"{chance.randint(300, 2000)}ms"}
        spec["serviceTime"] = {
            "fixed": f"{chance.randint(20, 80)}ms", "perRequest": f"{chance.randint(300, 900)}us",
        }  # fmt: skip
        spec["traffic"] = {"peakRate": chance.randint(500, 2000)}
    metadata = {"namespace": f"team-{number // 50}", "name": f"service-{number}"}
    metadata["uid"] = f"uid-{number}"
    return {"metadata": {**metadata, "generation": 1}, "spec": spec}


def levels(entries: list[Entry], chance: random.Random) -> dict[Key, float]:
    """A rate for each service that some replicas carry."""
    found = {}
    for entry in entries:
        assert entry.serving is not None, entry.resolved
        each = entry.serving.capacity_per_s(32)
        found[entry.ref.key] = each * chance.uniform(0.4, 8.0)
    return found


def observe(
    rates: dict[Key, float], replicas: dict[Key, int], now_s: float, chance: random.Random
) -> dict[Key, Observation]:
    """Rates with the noise of a minute's window."""
    observed = {}
    for key, level in rates.items():
        rate = level * chance.uniform(0.95, 1.05)
        target = TargetState(
            spec_replicas=replicas[key],
            ready_replicas=replicas[key],
            max_batch=32,
            batch_referenced=True,
            container="engine",
            youngest_ready_at_s=START_S - 86_400,
        )
        signals = Signals(rate_per_s=Known(rate, now_s), latency_p99_s=Known(0.2, now_s))
        observed[key] = Observation(signals, target)
    return observed


def render(entries: dict[Key, Entry], plans: list[Plan], now_s: float) -> int:
    """Render every status and keep those that changed; returns how many."""
    now = datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    changed = 0
    for plan in plans:
        entry = entries[plan.ref.key]
        fresh = status_api.status(plan, entry.status, now)
        if status_api.changed_materially(entry.status, fresh, "/".join(plan.ref.key)):
            entry.status = fresh
            changed += 1
    return changed


def remember(entries: dict[Key, Entry], plans: list[Plan], replicas: dict[Key, int]) -> None:
    """What a tick leaves behind, and the writes it would have made."""
    for plan in plans:
        entry, after = entries[plan.ref.key], plan.decision.after.replicas
        done = Applied(plan, scaled=plan.write_replicas)
        entry.past = past_of.after(entry.past, done, plan.decision.at_s)
        if plan.write_replicas and after is not None:
            replicas[plan.ref.key] = after


def ticks(corridor: Corridor, count: int) -> Iterator[tuple[dict[str, float], int, int]]:
    """CPU seconds by phase, statuses and scale writes of each tick."""
    entries = list(corridor.registry.entries())
    by_key = {entry.ref.key: entry for entry in entries}
    chance = random.Random(1)
    rates, replicas = levels(entries, chance), dict.fromkeys(by_key, 4)
    for number in range(count):
        clock, now_s = Clock(), START_S + number * TICK_S
        observed = observe(rates, replicas, now_s, chance)
        plans = clock.phase("decide", lambda: corridor.plans(entries, observed, now_s))  # noqa: B023
        statuses = clock.phase("status", lambda: render(by_key, plans, now_s))  # noqa: B023
        clock.phase("remember", lambda: remember(by_key, plans, replicas))  # noqa: B023
        yield clock.seconds, statuses, sum(plan.write_replicas for plan in plans)


def resident_mib() -> float:
    """Largest resident memory so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--services", type=int, default=5000)
    parser.add_argument("--kinds", type=int, default=200)
    parser.add_argument("--ticks", type=int, default=4)
    options = parser.parse_args()
    names = Catalogue()
    registry, clock = Registry(names), Clock()
    bodies = [body(number, number % options.kinds) for number in range(options.services)]
    clock.phase("read", lambda: [registry.put(one, START_S - 86_400) for one in bodies])
    clock.phase("resolve", lambda: list(registry.entries()))
    print(f"{options.services} services of {options.kinds} kinds; CPU seconds, one process")
    print("  ".join(f"{name} {seconds:.2f}" for name, seconds in clock.seconds.items()))
    print(f"{'tick':<6}{'decide':>8}{'status':>8}{'rest':>8}{'sum':>8}{'written':>9}{'scaled':>8}"
          f"{'MiB':>7}")  # fmt: skip
    # Neither gathers nor writes: both are given as data here.
    corridor = Corridor(registry, None, None, Policy(), names.gpus(), OwnMetrics())  # type: ignore[arg-type]
    total = 0.0
    for number, (seconds, statuses, scaled) in enumerate(ticks(corridor, options.ticks)):
        total = sum(seconds.values())
        shown = "".join(f"{seconds[name]:>8.2f}" for name in ("decide", "status", "remember"))
        name = "cold" if number == 0 else f"{number + 1}"
        print(f"{name:<6}{shown}{total:>8.2f}{statuses:>9}{scaled:>8}{resident_mib():>7.0f}")
    print(f"last tick {total:.2f} CPU s (goal {GOAL_CPU_S:g}), {resident_mib():.0f} MiB "
          f"(goal {GOAL_MIB:g})")  # fmt: skip


if __name__ == "__main__":
    main()
