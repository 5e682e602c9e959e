"""Continuous batching: an engine that takes requests in and lets them go at every step.

One question goes through five small parts: ``machine`` (step times, limits, capacity),
``population`` (law of the number inside), ``first_token`` (what an arrival finds; ``steps`` and
``backlog`` for the prompts in a step), ``decoding`` (end to end and per token), ``honesty`` (where
the answer is only indicative). ``model`` joins them behind the QueueModel protocol.
"""

from sojourn.model.continuous.model import ContinuousModel

__all__ = ["ContinuousModel"]
