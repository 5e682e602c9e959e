"""What went wrong in the field, by the id of the case."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from sojourn.decide import admission, resolve, spec_checks
from sojourn.decide.proposal import Proposal
from sojourn.facts.declaration import (
    Batching,
    DeclaredArchitecture,
    DeclaredEngine,
    DeclaredGpu,
    DeclaredModel,
    DeclaredTokens,
    LatentAttention,
    MetricsSource,
)
from sojourn.facts.finding import Finding, Verdict
from sojourn.facts.reasons import Reason
from sojourn.facts.replica import ContinuousReplica, OperatingPoint
from sojourn.facts.service_time import IterationTime, LinearServiceTime
from sojourn.facts.situation import TargetPods
from tests.unit.decide.builders import CATALOGUE, declaration, proposal, service

MILLION = 1_048_576
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def with_kv_limit(limit: int, **changes: object) -> Proposal:
    one = proposal(**changes)
    served = one.serving.service
    bounded = replace(served, bounds=replace(served.bounds, kv_limit=limit))
    return replace(one, serving=replace(one.serving, service=bounded))


def test_fc_058_a_length_far_beyond_the_cache_is_never_let_pass_in_silence() -> None:
    # 22.5 GiB of KV cache for a request of 1,048,576 tokens, 17.39 GiB there, longest 810,208.
    latent = DeclaredArchitecture(
        layers=20,
        hidden=5120,
        attention_heads=40,
        parameters=33.7e9,
        vocabulary=151_936,
        latent_attention=LatentAttention(kv_lora_rank=512, rope_head_dim=64),
    )
    told = {}
    for length in (MILLION, 810_208 // 2):
        found = admission.admit(
            proposal(
                model=DeclaredModel("mine", latent, "bf16", max_length_tokens=length),
                gpu=DeclaredGpu("H100-NVL"),
                engine=DeclaredEngine("vllm", "0.17", Batching.DYNAMIC, max_batch=8),
            )
        )
        told[length] = {f.reason for f in found}
    assert told[MILLION] & {Reason.WONT_START, Reason.MEMORY_TOO_CLOSE}
    assert not told[810_208 // 2] & {Reason.WONT_START, Reason.MEMORY_TOO_CLOSE}


@pytest.mark.parametrize(
    ("latent", "kv_heads", "tensor_parallel", "divided_by"),
    [
        pytest.param(LatentAttention(512, 64), 32, 8, 1, id="FC-059 latent KV is on every rank"),
        pytest.param(None, 8, 4, 4, id="FC-059 8 heads over 4 ranks"),
        pytest.param(None, 2, 8, 2, id="FC-059 2 heads over 8 ranks are repeated"),
    ],
)
def test_kv_memory_is_shared_out_only_where_heads_are(
    latent: LatentAttention | None, kv_heads: int, tensor_parallel: int, divided_by: int
) -> None:
    architecture = DeclaredArchitecture(
        layers=32,
        hidden=4096,
        attention_heads=32,
        kv_heads=kv_heads,
        parameters=8e9,
        vocabulary=128_256,
        latent_attention=latent,
    )
    per_token = [
        service(
            model=DeclaredModel("mine", architecture, "bf16", max_length_tokens=4096),
            gpu=DeclaredGpu("H100-80GB", tensor_parallel=ranks),
        ).memory.kv_bytes_per_token
        for ranks in (1, tensor_parallel)
    ]
    assert per_token[0] / per_token[1] == pytest.approx(divided_by)


def test_fc_060_the_rank_decides_not_the_cards_beside_it() -> None:
    # Two cards of 16 GB, one used: 15 GiB of weights do not start; tensorParallel 2 does.
    found = admission.admit(
        proposal(
            model=DeclaredModel("meta-llama/Llama-3.1-8B-Instruct", max_length_tokens=8192),
            gpu=DeclaredGpu("T4"),
            engine=DeclaredEngine("vllm", "0.17", Batching.DYNAMIC, max_batch=8),
        )
    )
    (rejected,) = [f for f in found if f.reason is Reason.WONT_START]
    assert "tensorParallel: 2" in rejected.message


def test_fc_062_the_queue_is_judged_with_the_batch_the_cache_holds() -> None:
    # max batch 64 would carry 400/s (rho 0.51); 20 fit: T = 60 ms, 333/s.
    one = with_kv_limit(20, engine={"max_batch": 64}, traffic={"peak_rate_per_s": 400.0})
    found = {f.reason: f for f in admission.admit(one)}
    assert found[Reason.KV_LIMITED].verdict is Verdict.WARN
    assert "20 is what the queue model works with" in found[Reason.KV_LIMITED].message
    unstable = found[Reason.UNSTABLE]
    assert dict(unstable.numbers)["max_stable_rate_per_s"] == pytest.approx(333.3, rel=1e-3)
    assert "max batch 20 cannot keep up with 400/s" in unstable.message


def test_a_latency_nobody_can_reach_is_refused_with_the_least_that_is() -> None:
    found = admission.admit(proposal(slo={"latency_s": 0.01}))
    (rejected,) = [f for f in found if f.verdict is Verdict.REJECT]
    assert rejected.reason is Reason.SLO_UNREACHABLE
    assert "a lone request on an idle replica takes 50.5ms" in rejected.message
    assert "Declare at least 51ms" in rejected.message


def test_a_model_that_does_not_load_is_judged_by_the_batch_it_declares() -> None:
    changes = {
        "model": DeclaredModel("meta-llama/Llama-2-70b-hf", precision="fp16"),
        "gpu": DeclaredGpu("A10G"),
    }
    stable = admission.admit(proposal(**changes))
    assert {f.reason for f in stable if f.verdict is Verdict.REJECT} == {Reason.WONT_START}
    both = admission.admit(proposal(**changes, engine={"min_batch": 4, "max_batch": 4}))
    told = {f.reason: f.message for f in both if f.verdict is Verdict.REJECT}
    assert set(told) == {Reason.WONT_START, Reason.UNSTABLE}
    assert told[Reason.UNSTABLE].startswith("max batch 4 cannot keep up")


def test_the_start_up_peak_is_refused_only_well_beyond_the_model_s_error() -> None:
    def found(batch: int) -> dict[Reason, Verdict]:
        resolved = resolve.resolve(
            declaration(
                model=DeclaredModel("Qwen/Qwen2.5-7B-Instruct", max_length_tokens=4096),
                gpu=DeclaredGpu("A10G", memory_utilisation=0.97),
                engine=DeclaredEngine("vllm", "0.17", Batching.DYNAMIC, max_batch=batch),
            ),
            CATALOGUE,
        )
        assert resolved.service is not None
        one = proposal()
        judged = replace(one, serving=replace(one.serving, service=resolved.service))
        return {f.reason: f.verdict for f in admission.gathered(admission.MEMORY, judged)}

    assert Reason.OUT_OF_MEMORY not in found(256)
    assert found(1024)[Reason.OUT_OF_MEMORY] is Verdict.REJECT


@pytest.mark.parametrize("rate_per_s", [100.0, 350.0, 1500.0])
def test_the_replicas_named_keep_the_slo_and_one_less_does_not(rate_per_s: float) -> None:
    replicas = math.ceil(rate_per_s / 140)
    one = proposal(
        slo={"latency_s": 0.105},
        traffic={"peak_rate_per_s": rate_per_s},
        scaling={"max_replicas": replicas},
    )
    found = {f.reason: f for f in admission.admit(one)}[Reason.SLO_MISSED_AT_PEAK]
    needed = int(dict(found.numbers)["replicas_needed"])
    assert f"Raise maxReplicas to {needed}." in found.message

    def p99_s(count: int) -> float:
        replica = one.serving.replica(one.best_batch)
        point = OperatingPoint(replica, rate_per_s, count)
        return one.serving.queue.sojourn(point, (0.99,)).latency.quantile_s(0.99)

    assert p99_s(needed) <= 0.105 < p99_s(needed - 1)


def test_where_the_timer_misses_the_slo_more_replicas_are_not_named() -> None:
    # 12/s a replica: batches of 8 do not fill within 200 ms, so every request waits for the timer.
    one = proposal(
        engine={"max_batch_wait_s": 0.2},
        slo={"latency_s": 0.15},
        traffic={"peak_rate_per_s": 12.0},
    )
    found = {f.reason: f for f in admission.admit(one)}
    assert "Shorten maxBatchWait" in found[Reason.SLO_MISSED_AT_PEAK].message
    assert Reason.BATCH_WAIT_TOO_LONG in found


def asked(query: str, lowest: int = 1) -> dict[Reason, Finding]:
    case = proposal(
        metrics=MetricsSource(arrival_rate_query=query), scaling={"min_replicas": lowest}
    )
    return {found.reason: found for found in admission.admit(case)}


@pytest.mark.parametrize(
    ("query", "warned"),
    [
        pytest.param("sum(rate(vllm:request_success_total[2m]))", True, id="FC-024"),
        pytest.param('sum(rate(requests_total{code!="500"}[2m]))', True, id="a matcher of its own"),
        pytest.param('sum(rate(requests_total{namespace=~".*"}[2m]))', True, id="any namespace"),
        pytest.param('sum(rate(requests_total{namespace!="x"}[2m]))', True, id="all but one"),
        pytest.param(
            'sum(rate(a_total{model="x"}[2m])) + sum(rate(b_total[2m]))', True, id="one of two"
        ),
        pytest.param('sum(rate({__name__="requests_total"}[2m]))', True, id="a name alone"),
        pytest.param('sum(rate(requests_total{namespace="a"}[2m]))', False, id="namespace"),
        pytest.param('sum(rate(requests_total{model_name="}["}[2m]))', False, id="model"),
        pytest.param("sum(rate(r_total{svc='chat'}[2m]))", False, id="service"),
        pytest.param('sum(rate(r_total{x="{{name}}"}[2m]))', False, id="placeholder"),
        pytest.param('sum(gateway:rps{namespace="a"})', False, id="a recorded rate"),
        pytest.param("vector(3)", False, id="a number"),
    ],
)
def test_a_query_that_selects_nobody_in_particular_is_warned_of(query: str, warned: bool) -> None:
    found = asked(query).get(Reason.QUERY_COUNTS_EVERYBODY)
    assert (found is not None) is warned
    if found is not None:
        assert found.verdict is Verdict.WARN
        assert "no namespace and no model or pod matcher" in found.message


@pytest.mark.parametrize(
    ("query", "refused"),
    [
        ('sum(rate(vllm:request_success_total{namespace="a"}[1m]))', True),
        ('sum(rate(kserve_vllm:request_success_total{namespace="a"}[1m]))', True),
        ('sum(rate(tgi_request_count{namespace="a"}[1m]))', True),
        ('sum(rate(envoy_cluster_upstream_rq_total{envoy_cluster_name="a"}[1m]))', False),
        (
            'sum(rate(gateway_total{namespace="a"}[1m])) or '
            'sum(rate(vllm:request_success_total{namespace="a"}[1m]))',
            False,
        ),
        ("sum(gateway:rps)", False),
    ],
)
def test_a_counter_that_only_pods_export_wakes_nobody(query: str, refused: bool) -> None:
    """FC-036, by a query of one's own: at zero replicas the series is not there."""
    found = asked(query, 0).get(Reason.MIN_REPLICAS_ZERO)
    assert (found is not None) is refused
    if found is not None:
        assert "is exported by pods alone" in found.message


def long_answers(grace_s: float | None, **changes: Any) -> Finding | None:
    """T(B) = 60 s + 0.5 s B at max batch 60: 90 s a batch."""
    case = proposal(
        service_time=LinearServiceTime(60.0, 0.5),
        engine={"max_batch": 60},
        slo={"latency_s": 400.0},
        traffic={"peak_rate_per_s": 0.5},
        **changes,
    )
    found = admission.admit(replace(case, pods=TargetPods(grace_s)))
    return next((f for f in found if f.reason is Reason.GRACE_TOO_SHORT), None)


def test_a_grace_below_the_longest_answers_is_warned_of() -> None:
    """FC-142: 30 s of grace, 90 s of generation, 5 s until nothing more is routed there."""
    found = long_answers(30.0)
    assert found is not None
    assert found.verdict is Verdict.WARN
    assert "terminationGracePeriodSeconds 30" in found.message
    assert "90s" in found.message
    assert found.message.endswith("Set at least 95.")
    assert long_answers(94.0) is not None
    assert long_answers(95.0) is None
    assert long_answers(None) is None


@pytest.mark.parametrize(
    ("tokens", "seconds"),
    [
        (DeclaredTokens(200, 900), 900 * 0.066),
        (DeclaredTokens(200), 919 * 0.066),
        (DeclaredTokens(200, 200), 200 * 0.066),
    ],
)
def test_the_longest_answer_of_a_continuous_engine_is_its_p99_of_tokens(
    tokens: DeclaredTokens, seconds: float
) -> None:
    """FC-142: 66 ms a step with 32 running."""
    case = proposal(
        engine={"batching": Batching.CONTINUOUS, "max_batch": 32},
        service_time=None,
        traffic={"output": tokens, "peak_rate_per_s": 0.1},
    )
    replica = case.service.replica
    assert isinstance(replica, ContinuousReplica)
    stepping = replace(replica, iteration=IterationTime(0.050, 0.0005))
    served = replace(case.service, replica=stepping)
    case = replace(case, serving=replace(case.serving, service=served), pods=TargetPods(1.0))
    found = spec_checks.grace_too_short(case)
    assert found is not None
    assert dict(found.numbers)["answer_s"] == pytest.approx(seconds, rel=0.01)


def estimated(latency_s: float, **traffic: Any) -> dict[Reason, Finding]:
    """A model and a card, and no service time: a lone request's P99 takes some 11 s."""
    case = proposal(
        model=DeclaredModel("meta-llama/Llama-3.1-8B-Instruct"),
        gpu=DeclaredGpu("A100-80GB"),
        engine=DeclaredEngine("vllm"),
        service_time=None,
        slo={"latency_s": latency_s},
        traffic={"peak_rate_per_s": None, "prompt": None, "output": None, **traffic},
        scaling={"max_replicas": 1},
    )
    return {found.reason: found for found in admission.admit(case)}


def test_what_is_assumed_of_the_tokens_refuses_no_slo() -> None:
    """The smallest object of the documentation: nobody said how long answers are."""
    assumed = estimated(10.0)[Reason.SLO_UNREACHABLE]
    assert assumed.verdict is Verdict.WARN
    assert "256 out assumed (declare spec.traffic.outputTokens)" in assumed.message
    below_one_step = estimated(0.005)[Reason.SLO_UNREACHABLE]
    assert below_one_step.verdict is Verdict.REJECT, "not even one token in and one out"
    declared = estimated(1.0, output=DeclaredTokens(256, 1200))[Reason.SLO_UNREACHABLE]
    assert declared.verdict is Verdict.REJECT
    assert "assumed" not in declared.message


def test_a_floor_within_the_error_of_an_estimate_refuses_no_slo() -> None:
    tokens = DeclaredTokens(256, 1200)
    floor_s = dict(estimated(1.0, output=tokens)[Reason.SLO_UNREACHABLE].numbers)["floor_s"]
    near = estimated(floor_s / 1.2, output=tokens)[Reason.SLO_UNREACHABLE]
    far = estimated(floor_s / 1.3, output=tokens)[Reason.SLO_UNREACHABLE]
    assert (near.verdict, far.verdict) == (Verdict.WARN, Verdict.REJECT)
    assert Reason.SLO_UNREACHABLE not in estimated(floor_s * 1.01, output=tokens)


def test_a_rate_that_is_too_much_for_assumed_tokens_says_what_was_assumed() -> None:
    found = estimated(60.0, peak_rate_per_s=100.0)[Reason.UNSTABLE]
    assert found.verdict is Verdict.REJECT
    assert "256 out assumed (declare spec.traffic.outputTokens)" in found.message


@pytest.mark.parametrize(
    ("engine", "tokens", "batch", "refused"),
    [
        ("vllm", 512, 1024, True),
        ("vllm", 1024, 1024, False),
        ("vllm", None, 1024, False),
        ("vllm", 128, None, False),
        ("sglang", 512, 1024, False),
    ],
)
def test_fewer_tokens_a_step_than_requests_do_not_start(
    engine: str, tokens: int | None, batch: int | None, refused: bool
) -> None:
    declared = DeclaredEngine(engine, max_batch=batch, max_batched_tokens=tokens)
    case = proposal(engine=declared, model=DeclaredModel(LLAMA))
    found = [f for f in admission.admit(case) if f.field == "spec.engine.maxBatchedTokens"]
    assert bool(found) is refused
    if refused:
        assert found[0].reason is Reason.WONT_START
        assert "Use at least 1024, or max batch 512" in found[0].message


@pytest.mark.parametrize(
    ("model", "warned"),
    [
        (DeclaredModel(LLAMA, max_length_tokens=131_072), False),
        (DeclaredModel(LLAMA, max_length_tokens=200_000), True),
        (DeclaredModel(LLAMA), False),
    ],
)
def test_a_length_above_the_model_s_own_is_warned_of(model: DeclaredModel, warned: bool) -> None:
    case = proposal(model=model, engine=DeclaredEngine("vllm", max_batch=8))
    found = {f.reason: f for f in admission.admit(case)}.get(Reason.LENGTH_ABOVE_MODEL)
    assert (found is not None) is warned
    if found is not None:
        assert found.verdict is Verdict.WARN
        assert "131072" in found.message
