"""The stage: load on each service by a schedule, and a record of what came of it each second."""

import math
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sojourn.facts.service_time import TokenLengths
from sojourn.simulate.engine import Completion, Outcome
from sojourn.simulate.load import RateStep, staircase, traffic
from sojourn.units import parse_quantity
from tests.e2e.demo.client import GROUP, Client
from tests.e2e.demo.fleet import Fleet, Front
from tests.e2e.demo.forecast import Forecast

MEASURED_OVER_S = 8.0  # P99 shown is that of the requests that ended in this time
COUNTED_OVER_S = 4.0


@dataclass(frozen=True)
class Part:
    """One service's part: name, load, and the lengths of its requests."""

    name: str
    steps: tuple[RateStep, ...]
    output: TokenLengths = field(default_factory=lambda: TokenLengths(1.0))
    prompt: TokenLengths = field(default_factory=lambda: TokenLengths(0.0))

    @property
    def duration_s(self) -> float:
        return sum(step.duration_s for step in self.steps)

    def rate_at(self, at_s: float) -> float:
        """Offered rate, requests per second; 0 after the end."""
        for step in self.steps:
            if at_s < step.duration_s:
                return step.rate_per_s
            at_s -= step.duration_s
        return 0.0


@dataclass(frozen=True)
class Sample:
    """One service at one moment; seconds since the start of the load.

    Attributes:
        offered_per_s: the schedule's rate.
        sent_per_s: requests counted at the router over the last seconds.
        observed_per_s: what the operator last wrote; nan if it knew none.
        utilisation: rho of the model at the offered rate and the ready replicas.
        p99_s, predicted_s: measured at the client; the model's at the same point as rho.
        ready, desired: replicas in the router, replicas of the Deployment's spec.
        wanted: what the decision table asks for at the offered rate and the ready replicas.
        row: the row of the operator's last decision.
    """

    at_s: float
    offered_per_s: float
    sent_per_s: float
    observed_per_s: float
    utilisation: float
    p99_s: float
    predicted_s: float
    ready: int
    desired: int
    wanted: int
    max_batch: int
    row: str


@dataclass
class Actor:
    """A part being played."""

    part: Part
    front: Front
    forecast: Forecast
    samples: list[Sample] = field(default_factory=list)
    playing: "Future[list[Completion]] | None" = None
    counted: list[tuple[float, int]] = field(default_factory=list)

    def attainment(self) -> float:
        """Share of requests that ended well and within the SLO."""
        ended = self.front.completions()
        return sum(within(one, self.forecast.slo_s) for one in ended) / max(1, len(ended))

    def latencies_s(self, from_s: float, to_s: float) -> list[float]:
        """Sojourn times of the requests that arrived between two points of the monotonic clock.

        Requests that were lost or refused count as endless.
        """
        return [
            one.finished_at_s - one.arrived_at_s if one.outcome is Outcome.DONE else math.inf
            for one in self.front.completions()
            if from_s <= one.arrived_at_s < to_s
        ]


def within(completion: Completion, slo_s: float) -> bool:
    """A request ended well and in time."""
    done = completion.outcome is Outcome.DONE
    return done and completion.finished_at_s - completion.arrived_at_s <= slo_s


class Stage:
    """Plays the parts in one namespace.

    Args:
        rng: of arrivals and lengths.
    """

    def __init__(
        self, fleet: Fleet, client: Client, namespace: str, rng: np.random.Generator
    ) -> None:
        self._fleet = fleet
        self._client = client
        self.namespace = namespace
        self._rng = rng
        self.actors: dict[str, Actor] = {}
        self.started_at_s = math.nan

    def cast(self, parts: Sequence[Part]) -> None:
        """Name the parts; their objects exist already."""
        profiles = self._client.items(f"{GROUP}/namespaces/{self.namespace}/servingprofiles")
        for part in parts:
            forecast = Forecast(self._client.service(self.namespace, part.name), profiles)
            front = self._fleet.front((self.namespace, part.name))
            self.actors[part.name] = Actor(part, front, forecast)

    def start(self) -> None:
        """Begin to send load."""
        self.started_at_s = time.monotonic()
        for actor in self.actors.values():
            part = actor.part
            load = traffic(staircase(part.steps, self._rng), part.output, part.prompt, self._rng)
            actor.playing = self._fleet.play((self.namespace, part.name), load)

    def stop(self) -> None:
        """Stop the load; requests under way are abandoned."""
        for actor in self.actors.values():
            if actor.playing is not None:
                actor.playing.cancel()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start of the load."""
        return time.monotonic() - self.started_at_s

    @property
    def duration_s(self) -> float:
        """Seconds of the longest part."""
        return max(actor.part.duration_s for actor in self.actors.values())

    def sample(self) -> None:
        """Look at every actor once and keep what was seen."""
        bodies = {b["metadata"]["name"]: b for b in self._client.services(self.namespace)}
        deployments = self._client.items(f"/apis/apps/v1/namespaces/{self.namespace}/deployments")
        desired = {d["metadata"]["name"]: int(d["spec"]["replicas"]) for d in deployments}
        for name, actor in self.actors.items():
            status = bodies.get(name, {}).get("status") or {}
            actor.samples.append(self._seen(actor, status, desired.get(name, 0)))

    def _seen(self, actor: Actor, status: dict[str, Any], desired: int) -> Sample:
        now_s, front, forecast = time.monotonic(), actor.front, actor.forecast
        offered = actor.part.rate_at(now_s - self.started_at_s)
        batch, ready = live_batch(front), front.ready
        return Sample(
            at_s=now_s - self.started_at_s,
            offered_per_s=offered,
            sent_per_s=_sent_per_s(actor, now_s),
            observed_per_s=observed_rate(status),
            utilisation=forecast.utilisation(offered, ready, batch),
            p99_s=_measured_p99_s(front, now_s),
            predicted_s=forecast.p99_s(offered, ready, batch),
            ready=ready,
            desired=desired,
            wanted=forecast.wanted(offered, ready, batch),
            max_batch=batch,
            row=str((status.get("lastDecision") or {}).get("row", "")),
        )


def live_batch(front: Front) -> int:
    """Max batch of the newest engine; 1 where none serves."""
    newest = next(reversed(list(front.engines.values())), None)
    return 1 if newest is None else newest.parameters.replica.max_batch


def observed_rate(status: dict[str, Any]) -> float:
    """The operator's rate in a status, requests per second; nan if it knew none."""
    value = (status.get("rate") or {}).get("value")
    return math.nan if value is None else parse_quantity(value)


def _sent_per_s(actor: Actor, now_s: float) -> float:
    actor.counted.append((now_s, actor.front.router.offered))
    past_s, past = next(c for c in actor.counted if now_s - c[0] <= COUNTED_OVER_S)
    return 0.0 if now_s <= past_s else (actor.front.router.offered - past) / (now_s - past_s)


def _measured_p99_s(front: Front, now_s: float) -> float:
    # Records come in the order in which requests ended: the newest are at the end.
    latencies: list[float] = []
    for load in front.loads:
        for one in reversed(load.completions):
            if one.finished_at_s < now_s - MEASURED_OVER_S:
                break
            if one.outcome is Outcome.DONE:
                latencies.append(one.finished_at_s - one.arrived_at_s)
    return float(np.percentile(latencies, 99)) if latencies else math.nan
