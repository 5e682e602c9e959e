"""Field cases of observation that have no other home."""

from __future__ import annotations

from sojourn.facts.reading import Known, Unknown
from sojourn.facts.reasons import Reason
from tests.unit.observe.test_signals import evidence, pods, rate


def test_a_pod_label_with_a_rank_behind_it_is_not_the_pod_and_not_a_zero() -> None:
    """FC-025: the gateway counts ``chat-0-rank-0``, the engine ``chat-0``, 30 requests run."""
    seen = evidence(
        offered={"chat-0-rank-0": 1000.0}, running={"chat-0": 30.0}, waiting={"chat-0": 0.0}
    )
    found = rate(seen, pods("chat-0"))
    assert isinstance(found, Unknown)
    assert found.reason is Reason.NO_SERIES


def test_a_lazy_counter_of_a_scraped_idle_pod_is_a_zero_and_of_an_unseen_one_is_not() -> None:
    """FC-038, but for one thing: the case has ``up`` = 1 and no other series of the pod, and asks
    for a zero. Metrics that are switched off look the same (SGLang without ``--enable-metrics``),
    so one gauge of the engine must be there too; vLLM has its gauges from its start.
    """
    for engine in ("vllm", "sglang", "tgi"):
        idle = evidence(running={"chat-0": 0.0}, waiting={"chat-0": 0.0})
        found = rate(idle, pods("chat-0"), engine)
        assert isinstance(found, Known)
        assert (found.value, found.lower_bound) == (0, False)
        assert isinstance(rate(evidence(), pods("chat-0"), engine), Unknown)


def test_a_counter_dropped_on_its_way_is_no_zero_though_nothing_runs_just_now() -> None:
    """A sibling of FC-038: relabelling drops the counter, histograms of the requests remain."""
    dropped = evidence(
        running={"chat-0": 0.0}, waiting={"chat-0": 0.0}, prompt_tokens={"chat": 512.0}
    )
    assert isinstance(rate(dropped, pods("chat-0"), "vllm"), Unknown)
