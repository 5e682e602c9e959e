"""Which statuses of a tick are written, over many ticks and services."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

from sojourn.api.changes import HEARTBEAT_S, LASTING_S
from sojourn.controller.registry import Entry
from sojourn.controller.statuses import Statuses, shown
from sojourn.facts.plan import Plan, Setting
from sojourn.facts.reasons import Reason
from sojourn.facts.situation import Past
from tests.unit.api.plans import AT_S, report, steady

TICK_S = 15.0


class Crowd:
    """Services whose plans a test makes, and the statuses that were written."""

    def __init__(self, services: int) -> None:
        self.statuses = Statuses()
        self.entries = [Entry(self._ref(i), Past(AT_S)) for i in range(services)]
        self.now_s = AT_S
        self.written: Counter[str] = Counter()

    def _ref(self, number: int) -> Any:
        return replace(steady().ref, name=f"chat-{number}")

    def tick(
        self, rate_per_s: float = 38.4, noise: random.Random | None = None, **plan: Any
    ) -> int:
        """One tick with that rate, and 5 % of noise a service; how many were written."""
        self.statuses.begin(len(self.entries), self.now_s)
        count = 0
        for entry in self.entries:
            rate = rate_per_s * (noise.uniform(0.95, 1.05) if noise else 1.0)
            count += self._write(entry, replace(steady(self.now_s, rate, **plan), ref=entry.ref))
        self.now_s += TICK_S
        return count

    def _write(self, entry: Entry, plan: Plan) -> bool:
        status = self.statuses.due(entry, plan, self.now_s)
        if status is None:
            return False
        entry.status, entry.shown, entry.differs_since_s = status, shown(plan), None
        self.written[entry.ref.name] += 1
        return True


def test_constant_load_writes_nothing_until_the_heartbeat() -> None:
    crowd = Crowd(30)
    assert crowd.tick() == 30
    assert [crowd.tick() for _ in range(19)] == [0] * 19
    assert crowd.tick() == 10


def test_under_noise_each_status_is_written_once_a_heartbeat_and_all_in_turn() -> None:
    crowd, noise = Crowd(240), random.Random(1)
    crowd.tick(noise=noise)
    begin = Counter(crowd.written)
    counts = [crowd.tick(noise=noise) for _ in range(80)]
    share = 240 * TICK_S / HEARTBEAT_S
    assert max(counts) <= share
    assert sum(counts[40:]) / 40 > 0.7 * share, "heartbeats go on, in every tick some"
    again = crowd.written - begin
    assert set(again.values()) <= {2, 3, 4}


def test_a_load_that_doubles_is_told_at_once_and_one_that_rises_by_a_seventh_in_a_minute() -> None:
    crowd = Crowd(3)
    crowd.tick(38.4)
    assert crowd.tick(80.0) == 3
    waits = [crowd.tick(92.0) for _ in range(5)]
    assert waits == [0, 0, 0, 0, 3]
    assert LASTING_S == 4 * TICK_S


def test_a_need_that_comes_and_goes_is_told_with_the_heartbeat_only() -> None:
    crowd = Crowd(5)
    wish = replace(steady().decision, row=Reason.UTILIZATION_HIGH, raw=Setting(8, 24))
    crowd.tick()
    counts = []
    for number in range(19):
        passing: dict[str, Any] = {}
        if number % 3:
            passing = {"decision": replace(wish, at_s=crowd.now_s)}
        counts.append(crowd.tick(**passing))
    assert counts == [0] * 19


def test_a_changed_setting_is_told_at_once_though_the_turn_is_full() -> None:
    crowd = Crowd(400)
    crowd.tick()
    moved = replace(steady().decision, after=Setting(9, 24), at_s=crowd.now_s)
    assert crowd.tick(decision=moved) == 400


def test_a_number_that_follows_the_rate_is_compared_with_what_was_written() -> None:
    """Steps that are each too small to be told add up."""
    crowd = Crowd(1)
    crowd.tick(report=report(utilisation=0.30))
    loads = [0.35, 0.42, 0.50, 0.59, 0.60, 0.61, 0.62, 0.63, 0.63]
    counts = [crowd.tick(report=report(utilisation=load)) for load in loads]
    assert counts == [0] * 8 + [1]


def test_a_status_that_could_not_be_written_is_tried_again() -> None:
    crowd = Crowd(1)
    (entry,) = crowd.entries
    for _ in range(3):
        crowd.statuses.begin(1, crowd.now_s)
        assert crowd.statuses.due(entry, steady(crowd.now_s), crowd.now_s) is not None
        crowd.now_s += TICK_S


def test_lasting_news_of_everybody_is_told_within_a_minute_heartbeats_or_not() -> None:
    crowd = Crowd(600)
    crowd.tick(38.4)
    counts = [crowd.tick(45.0) for _ in range(9)]
    assert counts == [0, 0, 0, 0, 150, 150, 150, 150, 0]
