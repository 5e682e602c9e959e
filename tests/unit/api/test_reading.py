"""From an object to a Declaration, or to every problem with it."""

import copy
import json
import typing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sojourn import api, engines
from sojourn.api.v1alpha1.engine import DYNAMIC_BY_DEFAULT, EngineName
from sojourn.errors import InvalidObject
from sojourn.facts import declaration as facts
from sojourn.facts.declaration import Declaration
from sojourn.facts.profile import Profile, ProfilePoint
from sojourn.facts.replica import Routing
from sojourn.facts.service_time import IterationTime, LinearServiceTime
from tests.unit.api.objects import FULL_SPEC, PROFILE, SMALLEST, full, smallest, with_value


def problems(body: Any) -> dict[str, str]:
    with pytest.raises(InvalidObject) as caught:
        api.read(body)
    return dict(caught.value.problems)


def test_the_smallest_object_of_the_specification_reads_with_the_defaults_of_the_facts() -> None:
    assert api.read(SMALLEST) == Declaration(
        ref=facts.ObjectRef("prod", "chat"),
        model=facts.DeclaredModel("meta-llama/Llama-3.1-8B-Instruct"),
        gpu=facts.DeclaredGpu("A100-80GB"),
        slo=facts.Slo(latency_s=10.0),
        target=facts.TargetRef("chat"),
        scaling=facts.Scaling(mode=facts.Mode.RECOMMEND),
    )


def test_without_a_scaling_block_nothing_may_be_written() -> None:
    assert api.read(SMALLEST).scaling.mode is facts.Mode.RECOMMEND


def test_with_a_scaling_block_the_mode_is_auto() -> None:
    body = with_value(smallest(), "scaling.maxReplicas", 8)
    assert api.read(body).scaling == facts.Scaling(max_replicas=8)


def test_every_field_reaches_the_declaration_in_seconds_bytes_and_fractions() -> None:
    read = api.read(full())
    assert read.model == facts.DeclaredModel(
        "meta-llama/Llama-2-70b-hf",
        facts.DeclaredArchitecture(
            layers=80,
            hidden=8192,
            attention_heads=64,
            kv_heads=8,
            head_dim=128,
            parameters=68.98e9,
            vocabulary=32000,
            sliding_window=facts.SlidingWindow(4096, 6),
        ),
        precision="fp16",
        max_length_tokens=4096,
    )
    assert read.gpu == facts.DeclaredGpu("A100-80GB", 80 * 2**30, 4, 1, 1, 0.90)
    assert read.engine == facts.DeclaredEngine(
        version="0.11",
        batching=facts.Batching.DYNAMIC,
        max_batch=256,
        max_batch_wait_s=0.005,
        queue_capacity=1000,
        max_batched_tokens=8192,
        max_batch_ref=facts.MaxBatchRef(container="engine"),
    )
    assert read.slo == facts.Slo(2.0, 0.5, 0.05, 0.99)
    assert read.traffic == facts.Traffic(
        40.0,
        120.5,
        facts.DeclaredTokens(1200, 3500),
        facts.DeclaredTokens(250, 900),
        Routing.RANDOM,
    )
    assert read.service_time == LinearServiceTime(0.050, 0.0005, 0.1)
    assert read.scaling.cold_start_s == 240.0
    assert read.metrics == facts.MetricsSource((("service", "chat"),), "sum(rate(x[1m]))")


def test_behavior_left_out_in_part_takes_the_defaults_of_its_direction() -> None:
    behaviour = api.read(full()).scaling.behaviour
    assert behaviour.down == facts.ScalingRules(120.0, (facts.ScalingPolicy("Pods", 1, 60.0),))
    assert behaviour.up == facts.ScalingRules(0.0, facts.DEFAULT_UP.policies, tolerance=0.05)


def test_latent_attention_is_read() -> None:
    body = with_value(full(), "model.architecture.slidingWindow", "-")
    latent = {"kvLoraRank": 512, "ropeHeadDim": 64}
    with_value(body, "model.architecture.latentAttention", latent)
    architecture = api.read(body).model.architecture
    assert architecture is not None
    assert architecture.latent_attention == facts.LatentAttention(512, 64)


def test_identity_comes_from_the_metadata() -> None:
    read = api.read(smallest(uid="u-1", generation=7))
    assert read.ref == facts.ObjectRef("prod", "chat", "u-1", 7)


def test_a_null_is_a_field_that_was_not_given() -> None:
    body = with_value(smallest(), "gpu.tensorParallel", None)
    assert api.read(body) == api.read(SMALLEST)


def test_a_null_maximum_is_a_missing_maximum_and_not_zero() -> None:
    body = with_value(smallest(), "scaling", {"minReplicas": 3, "maxReplicas": None})
    assert problems(body)["spec.scaling.maxReplicas"].startswith("is missing")


@pytest.mark.parametrize(
    ("annotations", "bypass", "paused"),
    [
        pytest.param({}, None, False, id="none"),
        pytest.param(
            {"serving.sojourn.dev/admission-bypass": "INC-1"}, "INC-1", False, id="bypass"
        ),
        pytest.param({"serving.sojourn.dev/paused": "true"}, None, True, id="paused"),
        pytest.param({"serving.sojourn.dev/paused": "false"}, None, False, id="not paused"),
    ],
)
def test_annotations_bypass_and_pause(annotations: Any, bypass: Any, paused: Any) -> None:
    read = api.read(smallest(annotations=annotations))
    assert (read.bypass, read.paused) == (bypass, paused)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [("admission-bypass", " "), ("admission-bypass", 3), ("paused", "yes"), ("paused", True)],
)
def test_an_annotation_that_cannot_be_read_is_a_problem_and_not_a_guess(
    annotation: Any, value: Any
) -> None:
    name = f"serving.sojourn.dev/{annotation}"
    assert f"metadata.annotations[{name}]" in problems(smallest(annotations={name: value}))


BAD_FIELDS = [
    ("slo.latency", "abc", 'is "abc": expected a duration with its unit'),
    ("slo.latency", 2, "is 2: expected a duration with its unit"),
    ("slo.latency", "0s", "above 0"),
    ("slo.latency", "-1s", "expected a duration"),
    ("slo.latency", "25h", "at most 24h"),
    ("slo.percentile", 99.9, "write a fraction in quotes"),
    ("slo.percentile", "100", "from 50 to 99.9"),
    ("traffic.rate", "-5", "requests per second above 0"),
    ("traffic.rate", 0, "requests per second above 0"),
    ("traffic.rate", "1e999999999", "requests per second above 0"),
    ("gpu.memory", "-80Gi", 'such as "80Gi"'),
    ("gpu.memory", "80GB", 'such as "80Gi"'),
    ("gpu.tensorParallel", True, "is true: expected a valid integer"),
    ("gpu.tensorParallel", 0, "greater than or equal to 1"),
    ("gpu.tensorParallel", "4", "expected a valid integer"),
    ("gpu.type", "", "at least 1 character"),
    ("model.name", "x" * 300, "has 300 characters: expected at most 253"),
    ("model.precision", "fp17", '"fp16"'),
    ("model.maxLenght", 4096, 'did you mean "maxLength"?'),
    ("model.zzz", 1, "expected one of name, architecture"),
    ("model.architecture", "dense", "expected an object with layers"),
    ("model.architecture", {}, "is missing: expected a value, such as 80"),
    ("model.architecture.keyValueHeads", 128, "must not exceed attentionHeads"),
    ("model.architecture.recurrentLayers", 81, "must not exceed layers"),
    ("engine.maxBatchSize", {"min": 9, "max": 3}, "min exceeds max"),
    ("engine.maxBatchRef.env", "A B", "not beginning with a digit"),
    ("engine.kvLayout", "Flat", '"Paged" or "Contiguous"'),
    ("engine.batching", "Continuous", "no meaning with Continuous batching"),
    ("engine.maxBatchWait", "-", "Dynamic batching"),
    ("slo.timeToFirstToken", "3s", "exceeds latency"),
    ("slo.interTokenLatency", "3s", "exceeds latency"),
    ("slo", {"percentile": "99"}, "at least one of latency"),
    ("traffic.peakRate", 39, "below rate"),
    ("traffic.promptTokens", {"mean": 10, "p99": 9}, "p99 is below mean"),
    ("serviceTime", {"fixed": "0s", "perRequest": "0s"}, "both 0"),
    ("profileRef", {"name": "p"}, "exclude each other"),
    ("scaling.minReplicas", 9, "exceeds maxReplicas"),
    ("scaling.targetUtilizationPercent", 50, "greater than or equal to 51"),
    ("scaling.targetUtilizationPercent", 85, "less than or equal to 84"),
    ("scaling.behavior.scaleUp", {"policies": []}, "at least 1 item"),
    ("scaleTargetRef.name", "x" * 300, "has 300 characters: expected at most 253"),
    ("scaleTargetRef.name", "Chat", "lower-case letters"),
    ("metrics.selector", {"a-b": "c"}, "no Prometheus label"),
    ("metrics.selector", {"__name__": "up"}, "no Prometheus label"),
    ("metrics.selector", {"a": 4}, "expected a valid string"),
]


@pytest.mark.parametrize(("path", "value", "text"), BAD_FIELDS)
def test_a_bad_field_is_named_with_what_is_expected(path: Any, value: Any, text: Any) -> None:
    found = problems(with_value(full(), path, value))
    assert any(text in told for told in found.values())
    assert all(field.startswith("spec.") for field in found)
    assert any(field.startswith(f"spec.{path.split('.')[0]}") for field in found)


def test_a_number_of_thousands_of_digits_is_told_without_them() -> None:
    found = problems(with_value(full(), "traffic.peakRate", 10**4400))
    assert found["spec.traffic.peakRate"].startswith("is a huge number: expected requests")


def test_no_replicas_need_a_wake_source() -> None:
    body = with_value(smallest(), "scaling", {"minReplicas": 0, "maxReplicas": 3})
    assert "wake source" in problems(body)["spec.scaling.minReplicas"]
    with_value(body, "metrics.arrivalRateQuery", "sum(rate(x[1m]))")
    assert api.read(body).scaling.min_replicas == 0


@pytest.mark.parametrize("engine", ["triton", "custom"])
def test_some_engines_batch_dynamically_unless_told_otherwise(engine: str) -> None:
    body = with_value(smallest(), "engine.name", engine)
    assert "maxBatchWait" in problems(body)["spec.engine"]
    with_value(body, "engine.maxBatchWait", "0s")
    assert api.read(body).engine.max_batch_wait_s == 0.0


def test_the_engines_room_agrees_which_engines_batch_dynamically() -> None:
    dynamic = [n for n in typing.get_args(EngineName) if engines.find(n).batching == "Dynamic"]
    assert sorted(dynamic) == sorted(DYNAMIC_BY_DEFAULT)


def test_a_contiguous_layout_needs_a_largest_batch() -> None:
    body = with_value(smallest(), "engine.kvLayout", "Contiguous")
    assert "maxBatchSize.max" in problems(body)["spec.engine.kvLayout"]


def test_all_problems_are_told_at_once() -> None:
    body = full()
    for path, value in (("slo.latency", "abc"), ("gpu.memory", "x"), ("scaling.minReplicas", 9)):
        with_value(body, path, value)
    body["metadata"]["name"] = "n" * 300
    assert set(problems(body)) == {
        "metadata.name",
        "spec.gpu.memory",
        "spec.scaling.minReplicas",
        "spec.slo.latency",
    }


def test_a_name_of_300_characters_is_told_with_its_length_and_not_repeated() -> None:
    found = problems(smallest(name="n" * 300))
    assert found == {"metadata.name": "has 300 characters: expected at most 253"}


def test_hundreds_of_problems_are_cut_with_their_number() -> None:
    body = smallest()
    body["spec"].update({f"unknown{i}": i for i in range(300)})
    with pytest.raises(InvalidObject) as caught:
        api.read(body)
    assert len(caught.value.problems) == 51
    assert caught.value.problems[-1] == ("spec", "250 more problems are not shown")


@pytest.mark.parametrize("body", [None, 3, "text", [], {}, {"metadata": 1, "spec": []}])
def test_what_is_no_object_at_all_is_a_problem(body: Any) -> None:
    assert problems(body)


def test_another_kind_or_version_is_refused() -> None:
    body = {**smallest(), "apiVersion": "serving.kserve.io/v1beta1", "kind": "Deployment"}
    assert set(problems(body)) == {"apiVersion", "kind"}


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["1s", "5ms", "99", "-1", "80Gi", "Dynamic", "x" * 400]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=4)
    ),
    max_leaves=12,
)


def leaves(node: Any, at: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = [at] if at else []
    if isinstance(node, dict):
        found += [path for key, item in node.items() for path in leaves(item, (*at, key))]
    return found


@given(JSON)
@settings(max_examples=150, deadline=None)
def test_any_json_at_all_gives_a_declaration_or_problems(body: Any) -> None:
    for reader in (api.read, api.read_profile):
        try:
            reader(body)
        except InvalidObject as error:
            assert error.problems


@given(st.lists(st.tuples(st.sampled_from(leaves(FULL_SPEC)), JSON), max_size=4))
@settings(max_examples=300, deadline=None)
def test_any_json_in_any_field_gives_a_declaration_or_problems_with_paths(changes: Any) -> None:
    body = full()
    for path, value in changes:
        place = body["spec"]
        for name in path[:-1]:
            place = place.get(name) if isinstance(place, dict) else None
        if isinstance(place, dict):
            place[path[-1]] = copy.deepcopy(value)
    try:
        assert isinstance(api.read(body), Declaration)
    except InvalidObject as error:
        assert error.problems
        assert all(field.startswith("spec") and text for field, text in error.problems)
        assert all(len(text) < 1500 for _, text in error.problems)


def test_deeply_nested_input_is_a_problem_and_not_a_crash() -> None:
    deep: Any = {}
    for _ in range(900):
        deep = {"a": deep}
    assert problems({**smallest(), "spec": deep})


def test_reading_leaves_the_object_as_it_was() -> None:
    body = full()
    before = json.dumps(body)
    api.read(body)
    assert json.dumps(body) == before


def test_a_profile_is_read_with_its_points_in_order() -> None:
    assert api.read_profile(PROFILE) == Profile(
        ref=facts.ObjectRef("prod", "llama2-70b-a100x4"),
        model="meta-llama/Llama-2-70b-hf",
        gpu_type="A100-80GB",
        tensor_parallel=4,
        prompt_tokens=512,
        output_tokens=128,
        points=(ProfilePoint(1, 0.0505), ProfilePoint(8, 0.054), ProfilePoint(32, 0.066)),
        iteration=IterationTime(0.012, 0.00025, 0.00004),
    )


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"points": "-", "continuous": "-"}, "nothing measured"),
        ({"points": "-", "fixed": "50ms"}, "belong together"),
        ({"fixed": "50ms", "perRequest": "500us"}, "exclude each other"),
        ({"points": "-", "fixed": "0s", "perRequest": "0s"}, "both 0"),
        ({"points": [{"batch": 1, "latency": "5ms"}]}, "at least 2 items"),
        ({"points": [{"batch": 1, "latency": "5ms"}] * 2}, "measured twice"),
        ({"points": [{"batch": 0, "latency": "5"}] * 2}, "expected a duration"),
    ],
)
def test_a_bad_profile_says_what_is_wrong(changes: Any, text: Any) -> None:
    body = copy.deepcopy(PROFILE)
    for path, value in changes.items():
        with_value(body, path, value)
    with pytest.raises(InvalidObject, match=text):
        api.read_profile(body)


def test_a_line_in_a_profile_is_read() -> None:
    body = with_value(copy.deepcopy(PROFILE), "points", "-")
    with_value(with_value(body, "fixed", "50ms"), "perRequest", "500us")
    assert api.read_profile(body).linear == LinearServiceTime(0.050, 0.0005)
