"""A draft of the continuous model for many replicas at once: the same laws on fewer nodes.

Arrays hold one operating point a row (k rows). Numbers inside are summed in at most 64 cells,
arrivals fall into five classes, outputs into two dozen lengths, and prompts that arrive have a
smooth tail in place of nodes, so that the share of late requests is smooth in the rate.

Covers what ``covered`` says: unbounded queues, wide token budgets, outputs of more than one token;
one replica or random splitting.
"""

from sojourn.model.continuous.draft.search import NEVER_S, Goals, Rates, covered, rates

__all__ = ["NEVER_S", "Goals", "Rates", "covered", "rates"]
