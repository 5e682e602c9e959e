"""Admission through a real API server: latency, verdicts, memory; ``make bench-admission``.

    python -m benchmarks.admission [--seconds 60] [--rate 200] [--kilobytes 6]

Objects, a fifth of them unstable, half of the rest never seen before, are created as a dry run at a
fixed rate (open loop: a late answer delays no other request). The same is done in a namespace
labelled ``admission: off``, which is the API server alone, half of it before and half after; the
difference is ours. Then the webhook is asked directly, and at 1,000 requests/s. The last lines say
which limits held.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.admission_client import (
    HEADER,
    Ask,
    Client,
    Meter,
    Outcome,
    Shot,
    fire,
    joined,
)
from tests.controlplane.components import LOOPBACK
from tests.controlplane.plane import ControlPlane
from tests.integration.operators import OneOperator, Operators, service, unstable

RATE_PER_S = 200.0
SECONDS = 60.0
OVERLOAD_PER_S = 1000.0
OVERLOAD_SECONDS = 30.0
RECOVERY_S = 10.0
INVALID_SHARE = 0.2
FRESH_SHARE = 0.4
POOL = 200
LOOK_S = 0.2
WARM_UP_S = 5.0

WITHIN_MS = 30.0
ADDED_MS = 5.0
RECOVERED_MS = 50.0
MOST_MIB = 512.0


@dataclass(frozen=True)
class Doors:
    """Two ways to the webhook with one kind of client."""

    api: Client
    webhook: Client
    filling: str

    async def through_api(self, namespace: str, text: str) -> tuple[int, bool]:
        """Status and whether it was admitted, by a dry-run creation."""
        path = f"/apis/serving.sojourn.dev/v1alpha1/namespaces/{namespace}/inferenceservices"
        whole = text.replace(PADDED, self.filling)
        answer = await self.api.ask(self.api.post(f"{path}?dryRun=All", whole))
        return answer.status, answer.status == 201

    async def judged(self, text: str) -> tuple[int, bool]:
        """Through the API server, which asks the webhook."""
        return await self.through_api("default", text)

    async def alone(self, text: str) -> tuple[int, bool]:
        """Through the API server, where it does not ask; whatever is stored is right."""
        return (await self.through_api("unjudged", text))[0], True

    async def directly(self, text: str) -> tuple[int, bool]:
        """The same question put to the webhook itself."""
        whole = f"{REVIEW}{text.replace(PADDED, self.filling)}}}}}"
        answer = await self.webhook.ask(self.webhook.post("/validate", whole))
        return answer.status, bool(json.loads(answer.content)["response"]["allowed"])


REVIEW = (
    '{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1",'
    '"kind":{"kind":"InferenceService","group":"serving.sojourn.dev"},"operation":"CREATE",'
    '"namespace":"default","name":"bench","userInfo":{"username":"bench"},"object":'
)
PADDED = "@padding@"


def shots(seed: int, count: int, *, never_seen: bool = True, judged: bool = True) -> list[Shot]:
    """The objects of a run; of every one, whether it is to be admitted.

    Args:
        never_seen: with objects whose spec no earlier one had.
        judged: False where nothing is judged and so everything is admitted.
    """
    rng = random.Random(seed)
    pool = [_valid(rng, f"known-{i}") for i in range(POOL)]

    def make(i: int) -> tuple[dict[str, Any], bool]:
        if rng.random() < INVALID_SHARE:
            body = unstable(f"bad-{i}")
            body["spec"]["traffic"] = {"peakRate": f"{rng.uniform(90, 200):.3f}"}
            return body, False
        if never_seen and rng.random() < FRESH_SHARE / (1 - INVALID_SHARE):
            return _valid(rng, f"new-{i}"), True
        body = rng.choice(pool)
        return {**body, "metadata": {"name": f"old-{i}"}}, True

    made = []
    for i in range(count):
        body, valid = make(i)
        body["metadata"]["annotations"] = {"example.com/padding": PADDED}
        made.append(Shot(json.dumps(body), valid or not judged))
    return made


def _valid(rng: random.Random, name: str) -> dict[str, Any]:
    """A service at most 80 % loaded at its peak: half Triton-like, half vLLM."""
    if rng.random() < 0.5:
        return service(name, traffic={"peakRate": f"{rng.uniform(20, 110):.3f}"})
    replicas = rng.randint(1, 8)
    body = service(
        name,
        model={"name": "meta-llama/Llama-3.1-8B-Instruct", "maxLength": 8192},
        gpu={"type": "H100-80GB"},
        engine={"name": "vllm", "version": "0.17", "maxBatchSize": {"min": 1, "max": 128}},
        slo={"latency": f"{rng.randint(15, 60)}s"},
        traffic={
            "peakRate": f"{rng.uniform(0.5, 6) * replicas:.3f}",
            "promptTokens": {"mean": rng.randint(100, 1500)},
            "outputTokens": {"mean": rng.randint(50, 300)},
        },
        scaling={"minReplicas": 1, "maxReplicas": replicas},
    )
    del body["spec"]["serviceTime"]
    return body


class Bench:
    """All runs against one operator behind one API server; their rows are printed as they end."""

    def __init__(
        self, operator: OneOperator, meter: Meter, doors: Doors, rate_per_s: float
    ) -> None:
        self._operator = operator
        self._meter = meter
        self._doors = doors
        self._rate_per_s = rate_per_s
        self.held: list[bool] = []

    async def pair(self, seconds: float) -> None:
        """The API server alone, half before and half after the same with the webhook."""
        count = int(self._rate_per_s * seconds)
        unjudged = shots(1, count, judged=False)
        halves = unjudged[: count // 2], unjudged[count // 2 :]
        before = await self._run(halves[0], self._doors.alone)
        ours = await self._run(shots(1, count), self._doors.judged)
        after = await self._run(halves[1], self._doors.alone)
        alone = joined("API server alone", (before, after))
        ours.name = "with webhook"
        for outcome in (alone, ours):
            show(outcome)
        added_ms = ours.quantile_ms(0.5) - alone.quantile_ms(0.5)
        self._hold("p99 with the webhook", ours.quantile_ms(0.99), WITHIN_MS, "ms")
        self._hold("p50 above the API server alone", added_ms, ADDED_MS, "ms")
        self._hold("errors and wrong verdicts", len(ours.errors) + ours.wrong, 0.5, "")

    async def others(self, seconds: float) -> None:
        """Where nothing is new to the webhook, and the webhook asked without the API server."""
        count = int(self._rate_per_s * seconds)
        known = shots(2, count, never_seen=False)
        await self._row("with webhook, specs seen before", known, self._doors.judged)
        await self._row("webhook directly", shots(3, count), self._doors.directly)

    async def overload(self, seconds: float) -> None:
        """1,000 requests/s, the memory meanwhile, and what is left of it ten seconds later."""
        peak_mib = [self._operator.resident_mib]
        watching = asyncio.create_task(self._watch(peak_mib))
        ways = (("overload", self._doors.judged), ("overload, directly", self._doors.directly))
        for name, ask in ways:
            many = shots(4, int(OVERLOAD_PER_S * seconds))
            await self._row(f"{name}, {OVERLOAD_PER_S:g}/s", many, ask, OVERLOAD_PER_S)
            await asyncio.sleep(RECOVERY_S)
            few = shots(5, int(self._rate_per_s * RECOVERY_S / 2))
            later = await self._row(f"10 s after {name}", few, ask)
            self._hold(f"p99 10 s after {name}", later.quantile_ms(0.99), RECOVERED_MS, "ms")
        watching.cancel()
        self._hold("largest resident memory", peak_mib[0], MOST_MIB, "MiB")
        alive = self._operator.process.running and self._operator.ready
        self._hold("crashes", float(not alive), 0.5, "")

    async def _watch(self, peak_mib: list[float]) -> None:
        while True:
            peak_mib[0] = max(peak_mib[0], self._operator.resident_mib)
            await asyncio.sleep(LOOK_S)

    async def warm_up(self, seconds: float) -> None:
        """Caches, connections, code paths: not measured."""
        for ask in (self._doors.judged, self._doors.alone):
            await self._run(shots(9, int(self._rate_per_s * seconds)), ask)

    async def _row(
        self, name: str, asked: Sequence[Shot], ask: Ask, rate_per_s: float | None = None
    ) -> Outcome:
        outcome = await self._run(asked, ask, rate_per_s)
        outcome.name = name
        show(outcome)
        return outcome

    async def _run(
        self, asked: Sequence[Shot], ask: Ask, rate_per_s: float | None = None
    ) -> Outcome:
        begun = self._meter.now()
        outcome = await fire(rate_per_s or self._rate_per_s, asked, ask)
        outcome.spent = self._meter.now() - begun
        return outcome

    def _hold(self, what: str, value: float, below: float, unit: str) -> None:
        held = value < below
        self.held.append(held)
        limit = "none" if below < 1 else f"below {below:g} {unit}"
        print(f"{'held' if held else 'MISSED':<7}{what}: {value:.3g} {unit} ({limit})", flush=True)


def show(outcome: Outcome) -> None:
    """Its row and a few of its errors."""
    print(outcome.row(), flush=True)
    for text in sorted(set(outcome.errors))[:3]:
        print(f"    {text}")


async def measure(operators: Operators, options: argparse.Namespace) -> bool:
    """All runs; True when every limit held."""
    plane = operators.plane
    (operator,) = operators.operators
    token = plane.kubectl("create", "token", "bench", "-n", "default", check=True).stdout.strip()
    tls = ssl.create_default_context(cafile=str(plane.ca_file))
    unchecked = ssl.create_default_context()
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    api = Client(plane.api_url, tls, (("Authorization", f"Bearer {token}"),))
    webhook = Client(f"https://{LOOPBACK}:{operators.port}", unchecked, ())
    own = operator.process.info
    assert own is not None
    pids = {one.name: one.pid for one in plane.processes}
    meter = Meter(pids.pop("kube-apiserver"), own.pid, tuple(pids.values()))
    doors = Doors(api, webhook, "x" * (1000 * options.kilobytes - 5000))
    bench = Bench(operator, meter, doors, options.rate)
    print(machine())
    print(HEADER, flush=True)
    await bench.warm_up(WARM_UP_S)
    for _ in range(options.repeat):
        await bench.pair(options.seconds)
    await bench.others(options.seconds / 3)
    if options.overload:
        await bench.overload(OVERLOAD_SECONDS)
    await api.close()
    await webhook.close()
    return all(bench.held)


def machine() -> str:
    """What else the machine does: figures of a loaded one say little."""
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    return f"{os.cpu_count()} CPUs; load average before the runs {load}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 when a limit did not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--rate", type=float, default=RATE_PER_S)
    parser.add_argument("--overload", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--repeat", type=int, default=1, help="pairs of the first two runs")
    parser.add_argument("--kilobytes", type=int, default=6, help="size of an object")
    options = parser.parse_args(arguments)
    with ControlPlane() as plane, Operators(plane, direct=True) as operators:
        plane.kubectl("create", "serviceaccount", "bench", "-n", "default", check=True)
        plane.kubectl(
            *("create", "clusterrolebinding", "bench", "--clusterrole=cluster-admin"),
            "--serviceaccount=default:bench",
            check=True,
        )
        plane.kubectl("create", "namespace", "unjudged", check=True)
        label = "serving.sojourn.dev/admission=off"
        plane.kubectl("label", "namespace", "unjudged", label, check=True)
        return 0 if asyncio.run(measure(operators, options)) else 1


if __name__ == "__main__":
    raise SystemExit(main())
