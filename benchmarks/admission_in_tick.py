"""Admission while a thread of the same process computes, as a tick does; ``make bench-admission``.

    python -m benchmarks.admission_in_tick [--seconds 8] [--rate 200]

Loop and thread take turns at one interpreter. The table has a row for each time after which a
thread must give it up (``sys.setswitchinterval``); the operator's own is marked. "Computed" is what
the thread got done, in verdicts a second.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import multiprocessing
import ssl
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.admission import REVIEW, shots
from benchmarks.admission_client import Client, Outcome, fire
from sojourn.catalogue import Catalogue
from sojourn.controller import certificates
from sojourn.controller.guard_review import Guard
from sojourn.controller.own_metrics import OwnMetrics
from sojourn.controller.registry import Registry
from sojourn.controller.review import Reviewer
from sojourn.controller.server import SWITCH_S, AdmissionServer
from sojourn.controller.trust import Served
from tests.controlplane.components import LOOPBACK, free_ports

INTERVALS_S = (0.005, 0.001, 0.0005, 0.0002, 0.0001, 0.00005)
WARM_UP = 100


class Ticking(threading.Thread):
    """Judges known services for ever, as the decisions of a long tick would."""

    def __init__(self, reviewer: Reviewer) -> None:
        super().__init__(daemon=True)
        self._reviewer = reviewer
        self._bodies = [json.loads(shot.text) for shot in shots(1, 500)]
        self.judged = 0

    def run(self) -> None:
        while True:
            for body in self._bodies:
                self._reviewer.review(body, None)
                self.judged += 1


async def serve(port: int, switch_s: float, pipe: Connection) -> None:
    """The admission server beside such a thread, until the other end speaks."""
    sys.setswitchinterval(switch_s)
    names = Catalogue()
    registry = Registry(names)
    reviewer = Reviewer(registry, names.gpus(), lambda _: (), lambda _: None)
    made = certificates.issue((LOOPBACK,), datetime.now(UTC))
    ticking = Ticking(reviewer)
    with tempfile.TemporaryDirectory() as folder:
        guard = Guard(registry, names.gpus())
        server = AdmissionServer(reviewer, guard, OwnMetrics(), Path(folder))
        server.use(Served(made.certificate_pem, made.key_pem))
        await server.start(LOOPBACK, port)
        gc.freeze()
        pipe.send("ready")
        await asyncio.to_thread(pipe.recv)
        ticking.start()
        pipe.send("ticking")
        await asyncio.to_thread(pipe.recv)
        pipe.send(ticking.judged)
        await server.stop()


def serving(port: int, switch_s: float, pipe: Connection) -> None:
    """Entry of the server's process."""
    asyncio.run(serve(port, switch_s, pipe))


async def measure(port: int, rate_per_s: float, seconds: float, pipe: Connection) -> Outcome:
    """One row: a warm-up, then requests while the thread computes."""
    unchecked = ssl.create_default_context()
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    client = Client(f"https://{LOOPBACK}:{port}", unchecked, ())

    async def ask(text: str) -> tuple[int, bool]:
        answer = await client.ask(client.post("/validate", f"{REVIEW}{text}}}}}"))
        return answer.status, bool(json.loads(answer.content)["response"]["allowed"])

    await fire(rate_per_s, shots(9, WARM_UP), ask)
    pipe.send("tick")
    pipe.recv()
    outcome = await fire(rate_per_s, shots(2, int(rate_per_s * seconds), never_seen=False), ask)
    await client.close()
    return outcome


def row(switch_s: float, rate_per_s: float, seconds: float) -> str:
    """One interval's line, from a server process of its own."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    (port,) = free_ports(1)
    process = context.Process(target=serving, args=(port, switch_s, there), daemon=True)
    process.start()
    here.recv()
    begun_s = time.monotonic()
    outcome = asyncio.run(measure(port, rate_per_s, seconds, here))
    here.send("end")
    judged_per_s = here.recv() / (time.monotonic() - begun_s)
    process.join(30)
    levels = "".join(f"{outcome.quantile_ms(level):10.1f}" for level in (0.5, 0.9, 0.99))
    mark = "  <- the operator's" if switch_s == SWITCH_S else ""
    wrong = outcome.wrong + len(outcome.errors)
    return f"{1e3 * switch_s:8.2f}{levels}{wrong:8}{judged_per_s:10.0f}{mark}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rate", type=float, default=200.0)
    options = parser.parse_args(arguments)
    print(f"{'switch':>8}{'p50':>10}{'p90':>10}{'p99':>10}{'errors':>8}{'computed':>10}   (ms)")
    for switch_s in INTERVALS_S:
        print(row(switch_s, options.rate, options.seconds), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
