"""Admission through a real API server: latency, verdicts, memory; ``make bench-admission``.

    python -m benchmarks.admission [--seconds 60] [--rate 200]

Objects of 50 kB, a fifth of them unstable, half of the rest never seen before, are created as a dry
run at a fixed rate (open loop: a late answer delays no other request). The same is done in a
namespace labelled ``admission: off``, which is the API server alone; the difference is ours. Then
the webhook is asked directly, and at 1,000 requests/s.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import ssl
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from tests.controlplane.components import LOOPBACK
from tests.controlplane.plane import ControlPlane
from tests.integration.operators import Operators, service, unstable

RATE_PER_S = 200.0
SECONDS = 60.0
OVERLOAD_PER_S = 1000.0
OVERLOAD_SECONDS = 30.0
RECOVERY_S = 10.0
INVALID_SHARE = 0.2
FRESH_SHARE = 0.4
POOL = 200
CONNECTIONS = 64
KINDS = "inferenceservices"


@dataclass
class Padding:
    """Bytes added to every object."""

    size: int = 45_000


padding = Padding()


@dataclass
class Outcome:
    """Answers of one run."""

    name: str
    sent: int = 0
    latencies_s: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    wrong: int = 0
    api_cpu_ms: float = 0.0
    own_cpu_ms: float = 0.0
    others_cpus: float = 0.0

    def quantile_ms(self, level: float) -> float:
        """Latency at a level, milliseconds."""
        if not self.latencies_s:
            return float("nan")
        ordered = sorted(self.latencies_s)
        return 1e3 * ordered[min(len(ordered) - 1, int(level * len(ordered)))]

    def row(self) -> str:
        """One line of the table."""
        figures = "".join(f"{self.quantile_ms(level):9.1f}" for level in (0.5, 0.9, 0.99, 0.999))
        mean = 1e3 * statistics.fmean(self.latencies_s) if self.latencies_s else float("nan")
        return (
            f"{self.name:<38}{self.sent:7}{mean:8.1f}{figures}{self.wrong:7}{len(self.errors):7}"
            f"{self.api_cpu_ms:9.2f}{self.own_cpu_ms:9.2f}{self.others_cpus:8.1f}"
        )


HEADER = (
    f"{'run':<38}{'sent':>7}{'mean':>8}{'p50':>9}{'p90':>9}{'p99':>9}{'p99.9':>9}"
    f"{'wrong':>7}{'errors':>7}{'cpu api':>9}{'cpu own':>9}{'others':>8}"
    "   (milliseconds; CPU a request; CPUs taken by programs that are not ours)"
)


@dataclass(frozen=True)
class Doors:
    """Two ways to the webhook with one client."""

    session: aiohttp.ClientSession
    api_url: str
    webhook_url: str
    tls: ssl.SSLContext
    webhook_tls: ssl.SSLContext

    async def through_api(self, namespace: str, text: str) -> tuple[int, bool]:
        """Status and whether it was admitted, by a dry-run creation."""
        url = f"{self.api_url}/apis/serving.sojourn.dev/v1alpha1/namespaces/{namespace}/{KINDS}"
        async with self.session.post(
            url, params={"dryRun": "All"}, data=text, ssl=self.tls, headers=JSON
        ) as answer:
            await answer.read()
            return answer.status, answer.status == 201

    async def directly(self, text: str) -> tuple[int, bool]:
        """The same question put to the webhook itself."""
        async with self.session.post(
            f"{self.webhook_url}/validate", data=f"{REVIEW}{text}}}}}", ssl=self.webhook_tls
        ) as answer:
            content = await answer.json()
            return answer.status, bool(content["response"]["allowed"])


JSON = {"Content-Type": "application/json"}
REVIEW = (
    '{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1",'
    '"kind":{"kind":"InferenceService","group":"serving.sojourn.dev"},"operation":"CREATE",'
    '"namespace":"default","name":"bench","userInfo":{"username":"bench"},"object":'
)
PADDED = "@padding@"


def bodies(seed: int, never_seen: bool = True) -> Callable[[int], tuple[dict[str, Any], bool]]:
    """The i-th object of a run, and whether it is valid."""
    rng = random.Random(seed)
    pool = [_valid(rng, f"known-{i}") for i in range(POOL)]

    def make(i: int) -> tuple[dict[str, Any], bool]:
        if rng.random() < INVALID_SHARE:
            body, valid = unstable(f"bad-{i}"), False
            body["spec"]["traffic"] = {"peakRate": f"{rng.uniform(90, 200):.3f}"}
        elif never_seen and rng.random() < FRESH_SHARE / (1 - INVALID_SHARE):
            body, valid = _valid(rng, f"new-{i}"), True
        else:
            body, valid = json.loads(json.dumps(rng.choice(pool))), True
            body["metadata"]["name"] = f"old-{i}"
        body["metadata"]["annotations"] = {"example.com/padding": PADDED}
        return body, valid

    return make


def _valid(rng: random.Random, name: str) -> dict[str, Any]:
    """A service at most 80 % loaded at its peak: half Triton-like, half vLLM."""
    if rng.random() < 0.5:
        return service(name, traffic={"peakRate": f"{rng.uniform(20, 110):.3f}"})
    replicas = rng.randint(1, 8)
    return service(
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
        serviceTime=None,
        scaling={"minReplicas": 1, "maxReplicas": replicas},
    )


def _cleaned(body: dict[str, Any]) -> dict[str, Any]:
    body["spec"] = {name: value for name, value in body["spec"].items() if value is not None}
    return body


async def run(
    name: str, rate_per_s: float, seconds: float, make: Callable[[int], Any], ask: Any
) -> Outcome:
    """Open loop: requests leave at their time, whatever became of the earlier ones."""
    outcome = Outcome(name)
    made = [make(i) for i in range(int(rate_per_s * seconds))]
    texts = [(json.dumps(_cleaned(body)), valid) for body, valid in made]
    filling = "x" * padding.size
    gc.collect()
    gc.freeze()
    began_s = time.monotonic()

    async def one(i: int) -> None:
        text, valid = texts[i]
        due_s = began_s + i / rate_per_s
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        sent_s = time.monotonic()
        try:
            status, admitted = await ask(text.replace(PADDED, filling))
        except (TimeoutError, aiohttp.ClientError, OSError) as exc:
            outcome.errors.append(f"{type(exc).__name__}: {exc}")
            return
        outcome.latencies_s.append(time.monotonic() - sent_s)
        if status not in (200, 201, 403):
            outcome.errors.append(f"HTTP {status}")
        elif admitted is not valid:
            outcome.wrong += 1

    under_way: set[asyncio.Task[None]] = set()
    for i in range(int(rate_per_s * seconds)):
        await asyncio.sleep(max(0.0, began_s + i / rate_per_s - 0.1 - time.monotonic()))
        task = asyncio.create_task(one(i))
        under_way.add(task)
        task.add_done_callback(under_way.discard)
        outcome.sent += 1
    await asyncio.gather(*under_way)
    return outcome


async def measure(
    operators: Operators, rate_per_s: float, seconds: float, *, overload: bool, repeat: int
) -> list[str]:
    """All runs; lines of the table."""
    plane = operators.plane
    (operator,) = operators.operators
    token = plane.kubectl("create", "token", "bench", "-n", "default", check=True).stdout.strip()
    tls = ssl.create_default_context(cafile=str(plane.ca_file))
    unchecked = ssl.create_default_context()
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    lines = [HEADER]

    api = next(one.pid for one in plane.processes if one.name == "kube-apiserver")
    own = operator.process.info
    assert own is not None
    pids = [api, own.pid, os.getpid(), *(one.pid for one in plane.processes)]
    spent = Spent.now(pids)

    def tell(outcome: Outcome) -> Outcome:
        nonlocal spent
        now = Spent.now(pids)
        outcome.api_cpu_ms = 1e3 * (now.each[0] - spent.each[0]) / outcome.sent
        outcome.own_cpu_ms = 1e3 * (now.each[1] - spent.each[1]) / outcome.sent
        outcome.others_cpus = now.others_since(spent)
        spent = now
        lines.append(outcome.row())
        print(outcome.row(), flush=True)
        for text in sorted(set(outcome.errors))[:3]:
            print(f"    {text}")
        return outcome

    print(HEADER, flush=True)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=CONNECTIONS),
        timeout=aiohttp.ClientTimeout(total=30),
        headers={"Authorization": f"Bearer {token}"},
    ) as session:
        url = f"https://{LOOPBACK}:{operators.port}"
        doors = Doors(session, plane.api_url, url, tls, unchecked)

        def judged(text: str) -> Any:
            return doors.through_api("default", text)

        async def alone(text: str) -> tuple[int, bool]:
            status, _ = await doors.through_api("unjudged", text)
            return status, True

        def all_valid(i: int) -> tuple[dict[str, Any], bool]:
            return bodies_of_alone(i)[0], True

        bodies_of_alone = bodies(1)
        await run("", rate_per_s, 5, bodies(9), judged)  # caches, connections, code paths
        spent = Spent.now(pids)
        pairs = []
        for _ in range(repeat):
            bare = tell(await run("API server alone", rate_per_s, seconds, all_valid, alone))
            ours = tell(await run("with webhook", rate_per_s, seconds, bodies(1), judged))
            pairs.append((bare, ours))
        known = bodies(2, never_seen=False)
        tell(await run("with webhook, specs seen before", rate_per_s, seconds / 3, known, judged))
        tell(await run("webhook directly", rate_per_s, seconds / 3, bodies(3), doors.directly))
        if overload:
            await run_overload(tell, operator, doors, judged)
    # On a machine that others use too, the pair they disturbed least says most.
    bare, ours = min(pairs, key=lambda pair: pair[0].others_cpus + pair[1].others_cpus)
    gap_ms = ours.quantile_ms(0.5) - bare.quantile_ms(0.5)
    lines.append(
        f"least disturbed pair: p50 {gap_ms:.1f} ms above the API server alone, "
        f"p99 {ours.quantile_ms(0.99):.1f} ms (alone {bare.quantile_ms(0.99):.1f} ms)"
    )
    print(lines[-1])
    return lines


async def run_overload(
    tell: Callable[[Outcome], Outcome], operator: Any, doors: Doors, judged: Any
) -> None:
    """1,000 requests/s through the API server, memory meanwhile, and the ten seconds after."""
    peak_mib = [operator.resident_mib]

    async def watch() -> None:
        while True:
            peak_mib[0] = max(peak_mib[0], operator.resident_mib)
            await asyncio.sleep(0.2)

    watching = asyncio.create_task(watch())
    for name, ask in (("overload", judged), ("overload, directly", doors.directly)):
        title = f"{name}, {OVERLOAD_PER_S:g}/s"
        tell(await run(title, OVERLOAD_PER_S, OVERLOAD_SECONDS, bodies(4), ask))
        await asyncio.sleep(RECOVERY_S)
        tell(await run(f"10 s after {name}", RATE_PER_S, 5, bodies(5), ask))
    watching.cancel()
    alive = operator.ready
    print(f"operator ready: {alive}; largest resident memory {peak_mib[0]:.0f} MiB")


@dataclass(frozen=True)
class Spent:
    """CPU seconds up to a moment: of each of our processes, and of the whole machine."""

    at_s: float
    each: tuple[float, ...]
    machine_s: float

    @classmethod
    def now(cls, pids: Sequence[int]) -> Spent:
        """A look at /proc."""
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
        busy = sum(map(int, fields[:8])) - int(fields[3]) - int(fields[4])
        each = tuple(cpu_s(pid) for pid in pids)
        return cls(time.monotonic(), each, busy / os.sysconf("SC_CLK_TCK"))

    def others_since(self, earlier: Spent) -> float:
        """CPUs that other programs took meanwhile; processes listed twice count once."""
        ours = sum(self.each[1:]) - sum(earlier.each[1:])
        busy = self.machine_s - earlier.machine_s
        return max(0.0, busy - ours) / (self.at_s - earlier.at_s)


def cpu_s(pid: int) -> float:
    """CPU seconds a process has used: what a loaded machine does not change."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def machine() -> str:
    """What else the machine does: figures of a loaded one say little."""
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    return f"{os.cpu_count()} CPUs; load average before the runs {load}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--rate", type=float, default=RATE_PER_S)
    parser.add_argument("--overload", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--repeat", type=int, default=1, help="pairs of the first two runs")
    parser.add_argument("--kilobytes", type=int, default=50, help="size of an object")
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
        print(machine())
        padding.size = 1000 * options.kilobytes - 5000
        asyncio.run(
            measure(
                operators,
                options.rate,
                options.seconds,
                overload=options.overload,
                repeat=options.repeat,
            )
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
