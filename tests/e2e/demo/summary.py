"""The end of the demo: what was kept, what it cost, and every decision with its reason."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.e2e.demo.client import Client
from tests.e2e.demo.stage import Actor

DECISIONS = ("ScaledUp", "ScaledDown", "BatchChanged")


@dataclass(frozen=True)
class Cost:
    """Replica-seconds of one service over the load.

    Attributes:
        used: replicas asked for, over time.
        static: as many replicas as the most that were ever asked for, all the time.
    """

    used: float
    static: float

    @property
    def saved(self) -> float:
        """Share saved against the static maximum."""
        return 1 - self.used / self.static if self.static else 0.0


def cost(actor: Actor) -> Cost:
    """What the replicas of a service cost."""
    times = [sample.at_s for sample in actor.samples]
    desired = [sample.desired for sample in actor.samples]
    lengths = np.diff(times, append=times[-1])
    return Cost(float(np.dot(lengths, desired)), max(desired) * (times[-1] - times[0]))


def decisions(client: Client, namespace: str) -> list[dict[str, Any]]:
    """Events of changes, oldest first."""
    return [event for event in client.events(namespace) if event["reason"] in DECISIONS]


def lines(actors: dict[str, Actor], events: list[dict[str, Any]]) -> list[str]:
    """The summary as text."""
    out = ["", "SUMMARY"]
    for name, actor in actors.items():
        ended, spent = actor.front.completions(), cost(actor)
        out.append(
            f"{name}: {len(ended)} requests, {actor.attainment():.2%} within the SLO of "
            f"{actor.forecast.slo_s:g} s; {spent.used:.0f} replica-seconds, {spent.static:.0f} "
            f"with the most replicas all the time: {spent.saved:.0%} saved"
        )
    out += ["", "DECISIONS (events of the InferenceServices)"]
    out += [
        f"{str(event['eventTime'])[11:19]} {event['regarding']['name']} {event['reason']}: "
        f"{event['note']}"
        for event in events
    ]
    return out
