"""Which queueing model answers for a replica, by its kind of batching and the tail rule."""

from __future__ import annotations

from sojourn.facts.declaration import TailRule
from sojourn.facts.replica import ContinuousReplica, Replica
from sojourn.model.exact_model import ExactModel
from sojourn.model.protocol import QueueModel
from sojourn.model.surrogate_model import SurrogateModel, SurrogateTail


def model_for(replica: Replica, tail_rule: TailRule = TailRule.EXACT) -> QueueModel:
    """The model of a replica: exact by default, the book's surrogate when its tail rule is asked.

    The book's rules are stated for batches that start and end together; a continuous-batching
    replica always gets the continuous model. ``Measured`` scales what the exact model predicts.
    """
    if isinstance(replica, ContinuousReplica):
        # Imported late: the continuous model builds tables when it is loaded.
        from sojourn.model.continuous import ContinuousModel  # noqa: PLC0415

        return ContinuousModel()
    if tail_rule is TailRule.EXPONENTIAL:
        return SurrogateModel(SurrogateTail.EXPONENTIAL)
    if tail_rule is TailRule.GAUSSIAN:
        return SurrogateModel(SurrogateTail.GAUSSIAN)
    return ExactModel()
