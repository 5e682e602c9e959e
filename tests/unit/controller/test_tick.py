"""What a tick spreads over the ticks that follow."""

from __future__ import annotations

from collections import Counter

from sojourn.controller.registry import Entry
from sojourn.controller.tick import LEARN_EVERY, learns
from sojourn.facts.declaration import ObjectRef
from sojourn.facts.situation import Past

SERVICES = 1000


def test_every_service_calibrates_once_in_twenty_ticks_and_never_all_in_one() -> None:
    entries = [Entry(ObjectRef("prod", f"s{i}", f"uid-{i}"), Past(0.0)) for i in range(SERVICES)]
    times: Counter[str] = Counter()
    for _ in range(LEARN_EVERY):
        learning = [entry.ref.name for entry in entries if learns(entry)]
        assert len(learning) < 2 * SERVICES / LEARN_EVERY
        times.update(learning)
        for entry in entries:
            entry.ticks += 1
    assert times == dict.fromkeys((entry.ref.name for entry in entries), 1)
