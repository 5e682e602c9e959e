"""A queueing model that only says what it can say at once, for answers given in the event loop.

Nearly every admission is judged by a bound and by what was solved before, in 0.3 ms; handing that
to a thread costs 0.4 ms more, and the two then wait for each other's turn at the interpreter. So
the loop tries by itself, and what would have to be solved goes to a thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sojourn.facts.replica import OperatingPoint, Replica
from sojourn.facts.sojourn import LatencyGoal, ReplicaRate, Sojourn
from sojourn.model.max_rate import asks_latency
from sojourn.model.protocol import QueueModel


class NeedsTime(Exception):
    """The answer must be solved, which takes milliseconds to tenths of a second."""


@dataclass(frozen=True, eq=False)
class AtOnce:
    """Asks the model for what is one division, and raises for what is not.

    It equals the model it stands for, so that what was solved for one is remembered for both
    (``decide`` keeps answers by model and question, and exceptions not at all).
    """

    model: QueueModel

    @property
    def name(self) -> str:
        """The model's."""
        return self.model.name

    def __hash__(self) -> int:
        return hash(self.model)

    def __eq__(self, other: object) -> bool:
        return self.model == (other.model if isinstance(other, AtOnce) else other)

    def sojourn(self, point: OperatingPoint, probabilities: Sequence[float]) -> Sojourn:
        """Never at once.

        Raises:
            NeedsTime: always.
        """
        raise NeedsTime(point, probabilities)

    def max_rate(self, replica: Replica, goal: LatencyGoal, dispersion: float = 1.0) -> ReplicaRate:
        """The model's, where only the load limits it.

        Raises:
            NeedsTime: a latency or a share of lost requests limits it too.
        """
        if asks_latency(goal) or goal.max_blocking < 1:
            raise NeedsTime(replica, goal)
        return self.model.max_rate(replica, goal, dispersion)
