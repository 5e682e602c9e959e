"""Time and memory of a tick's observation: answers parsed, joined and read for every service.

    python -m benchmarks.observe [--services 5000] [--pods 5]

A fake Prometheus on the loopback gives the answers a fleet of that size would give; the time of
the real server is not in it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from typing import Any
from urllib.parse import parse_qs, urlsplit

from sojourn import engines
from sojourn.facts.declaration import (
    Declaration,
    DeclaredGpu,
    DeclaredModel,
    ObjectRef,
    Slo,
    TargetRef,
)
from sojourn.observe.cluster import WATCHED, ClusterState
from sojourn.observe.evidence import Evidence, add_answer
from sojourn.observe.gather import Gatherer
from sojourn.observe.prometheus import PrometheusSource
from sojourn.observe.queries import Question, questions
from sojourn.observe.settings import PrometheusSettings, ScrapeSettings
from sojourn.observe.signals import View, engine_signals

SCRAPE = ScrapeSettings()
SAFE = "bcdfghjklmnpqrstvwxz2456789"
VLLM = frozenset({"vllm"})


@dataclass(frozen=True)
class Fleet:
    """Services of equal size, 50 to a namespace."""

    services: int
    pods: int

    def names(self) -> Iterator[tuple[str, str]]:
        """Namespace and name of each service."""
        return ((f"team-{i // 50}", f"service-{i}") for i in range(self.services))

    def pod_names(self, service: str) -> list[str]:
        """Names as a ReplicaSet's controller makes them."""
        return [f"{service}-7d9f8b6c5d-{SAFE[i % 27]}2k4z" for i in range(self.pods)]


def declarations(fleet: Fleet) -> list[Declaration]:
    return [
        Declaration(
            ref=ObjectRef(namespace, name),
            model=DeclaredModel("meta-llama/Llama-3.1-8B-Instruct"),
            gpu=DeclaredGpu("H100-80GB"),
            slo=Slo(latency_s=1.0),
            target=TargetRef(name),
        )
        for namespace, name in fleet.names()
    ]


def bodies(fleet: Fleet) -> Iterator[tuple[str, dict[str, Any]]]:
    """Watch events of the whole fleet."""
    for namespace, name in fleet.names():
        owner = f"{name}-7d9f8b6c5d"
        yield "Deployment", _deployment(namespace, name, fleet.pods)
        yield "ReplicaSet", {"metadata": _metadata(namespace, owner, ("Deployment", name))}
        for pod in fleet.pod_names(name):
            ready = {"type": "Ready", "status": "True"}
            ready["lastTransitionTime"] = "2026-01-01T00:00:00Z"
            status = {"phase": "Running", "conditions": [ready]}
            metadata = _metadata(namespace, pod, ("ReplicaSet", owner))
            metadata["labels"] = {"app": name, "pod-template-hash": "7d9f8b6c5d"}
            yield "Pod", {"metadata": metadata, "status": status}


def _deployment(namespace: str, name: str, replicas: int) -> dict[str, Any]:
    container = {
        "name": "vllm",
        "image": "vllm/vllm-openai:v0.20.1",
        "args": ["--model=/m", "--max-num-seqs=$(SOJOURN_MAX_BATCH)", "--max-model-len=8192"],
        "env": [{"name": "SOJOURN_MAX_BATCH", "value": "64"}],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    return {
        "metadata": _metadata(namespace, name, None),
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [container]}}},
        "status": {"replicas": replicas, "updatedReplicas": replicas, "observedGeneration": 1},
    }


def _metadata(namespace: str, name: str, owner: tuple[str, str] | None) -> dict[str, Any]:
    found: dict[str, Any] = {"namespace": namespace, "name": name, "generation": 1}
    found["uid"] = f"{namespace}/{name}"
    if owner is not None:
        reference = {"kind": owner[0], "name": owner[1], "uid": f"{namespace}/{owner[1]}"}
        found["ownerReferences"] = [{**reference, "controller": True}]
    return found


def answers(fleet: Fleet) -> dict[str, bytes]:
    """The body of each question's answer, by expression."""
    at_s = time.time()
    asked = questions(VLLM, SCRAPE)
    by_pod = [
        {"namespace": namespace, "pod": pod}
        for namespace, name in fleet.names()
        for pod in fleet.pod_names(name)
    ]
    by_workload = [{"namespace": ns, "workload": name} for ns, name in fleet.names()]
    found: dict[Question, list[dict[str, str]]] = {
        Question.HEALTH: [],
        Question.OFFERED: by_pod,
        Question.IN_FLIGHT: [{**p, "role": r} for r in ("running", "waiting") for p in by_pod],
        Question.KV_USAGE: by_pod,
        Question.LATENCY: [{**w, "role": r} for r in ("p50", "p99") for w in by_workload],
        Question.FIRST_TOKEN: by_workload,
        Question.OUTPUT_TOKEN: by_workload,
        Question.TOKENS: [
            {**w, "role": r} for r in ("prompt_tokens", "output_tokens") for w in by_workload
        ],
        Question.PREEMPTIONS: by_workload,
    }
    return {asked[question]: _vector(labels, at_s) for question, labels in found.items()}


def _vector(labels: list[dict[str, str]], at_s: float) -> bytes:
    result = [{"metric": each, "value": [at_s, "0.7333333333333333"]} for each in labels]
    data = {"resultType": "vector", "result": result}
    return json.dumps({"status": "success", "data": data}, separators=(",", ":")).encode()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)["query"][0]
        body = self.server.bodies[query]  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _serve(fleet: Fleet, port: Any) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.bodies = answers(fleet)  # type: ignore[attr-defined]
    port.send(server.server_address[1])
    server.serve_forever()


@contextmanager
def fake_prometheus(fleet: Fleet) -> Iterator[str]:
    """Its own process, so that its time is not counted as ours."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(fleet, theirs), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.terminate()
        process.join()


def phase(name: str, work: Callable[[], Any]) -> Any:
    """Print the CPU and wall time of one phase; returns what the work returns."""
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    found = work()
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    print(f"{name:<44} {cpu_s:>8.2f} {wall_s:>8.2f} {resident_mib():>8.0f}")
    return found


def resident_mib() -> float:
    """Largest resident memory so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def run(fleet: Fleet, url: str) -> None:
    cluster = ClusterState()
    events = list(bodies(fleet))

    def take_in() -> None:
        for kind, body in events:
            cluster.apply(kind, None, body)
        for kind in WATCHED:
            cluster.mark_synced(kind)

    phase(f"take in {len(events)} watch events", take_in)
    services = declarations(fleet)
    source = PrometheusSource(PrometheusSettings(url, timeout_s=60))
    now_s = time.time()
    asked = questions(VLLM, SCRAPE)
    found: dict[Question, Any] = {}
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    for question, expression in asked.items():
        found[question] = await source.query(expression, now_s)
    series = sum(map(len, found.values()))
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    print(f"{f'receive and parse {series} series':<44} {cpu_s:>8.2f} {wall_s:>8.2f} {'':>8}")
    evidence = Evidence(now_s)

    def index() -> None:
        for question, answer in found.items():
            add_answer(evidence, question, answer, SCRAPE)

    phase("index them by pod and workload", index)
    engine = engines.find("vllm")
    pods = phase("pods of each service", lambda: [cluster.pods_of(d) for d in services])
    phase("target states, flags read anew", lambda: [cluster.target_state(d) for d in services])
    phase("target states", lambda: [cluster.target_state(d) for d in services])
    phase("quotas", lambda: [cluster.quota_replicas(d) for d in services])
    phase("signals", lambda: [engine_signals(View(engine, p, evidence, SCRAPE)) for p in pods])
    found.clear()
    evidence.by_role.clear()
    gatherer = Gatherer(cluster, source, SCRAPE)
    for tick in range(3):
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        observed = await gatherer.gather(services, {}, time.time())
        wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
        name = f"gather, tick {tick + 1}, {len(observed)} services"
        print(f"{name:<44} {cpu_s:>8.2f} {wall_s:>8.2f} {resident_mib():>8.0f}")
    print(f"queries a tick: {len(asked)}; threads: {threading.active_count()}")
    source.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--services", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=5)
    options = parser.parse_args()
    fleet = Fleet(options.services, options.pods)
    print(f"{fleet.services} services of {fleet.pods} pods")
    print(f"{'phase':<44} {'CPU s':>8} {'wall s':>8} {'MiB':>8}")
    with fake_prometheus(fleet) as url:
        asyncio.run(run(fleet, url))


if __name__ == "__main__":
    main()
