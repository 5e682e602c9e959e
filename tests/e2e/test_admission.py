"""Admission as kubectl prints it: refusals with numbers, and bad input of every kind."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tests.controlplane.plane import ControlPlane
from tests.e2e.demo.installation import EXAMPLES
from tests.e2e.house import House
from tests.waiting import eventually

TOLD_S = 20.0
Body = dict[str, Any]


def example(name: str) -> Body:
    body: Body = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    return body


def applied(plane: ControlPlane, namespace: str, body: Body) -> tuple[int, str]:
    """Exit code of ``kubectl apply`` and everything it printed."""
    answer = plane.kubectl("apply", "-n", namespace, "-f", "-", input=yaml.safe_dump(body))
    return answer.returncode, answer.stdout + answer.stderr


def test_a_70b_model_on_one_24_gb_card_is_denied_with_numbers_and_what_would_start(
    house: House, namespace: str
) -> None:
    code, text = applied(house.plane, namespace, example("oom"))
    assert code == 1
    assert "Error from server (Forbidden)" in text
    assert "WontStart: " in text
    assert "GiB" in text
    assert "tensorParallel" in text
    assert "serving.sojourn.dev/admission-bypass" in text


def test_gpt3_pinned_to_a_batch_of_4_is_denied_and_told_6_8_and_2_replicas(
    house: House, namespace: str
) -> None:
    code, text = applied(house.plane, namespace, example("unstable"))
    assert code == 1
    assert "Error from server (Forbidden)" in text
    for figure in (
        "Unstable: ",
        "utilisation 1.30",
        "6: 0.88",
        "to 8",
        "0.75",
        "2 replicas (0.65)",
    ):
        assert figure in text


def test_gpt3_with_a_batch_of_8_is_admitted(house: House, namespace: str) -> None:
    code, text = applied(house.plane, namespace, example("gpt3"))
    assert (code, "created" in text) == (0, True), text


def test_a_bypass_is_admitted_with_a_warning(house: House, namespace: str) -> None:
    body = example("unstable")
    body["metadata"]["annotations"] = {"serving.sojourn.dev/admission-bypass": "load test"}
    code, text = applied(house.plane, namespace, body)
    assert code == 0
    assert "Warning: " in text
    assert "Unstable" in text


def changed(change: Callable[[Body], None]) -> Body:
    body = copy.deepcopy(example("gpt3"))
    change(body)
    return body


def negative_rate(body: Body) -> None:
    body["spec"]["traffic"]["rate"] = "-3"


def no_duration(body: Body) -> None:
    body["spec"]["slo"]["latency"] = "abc"


def unitless_duration(body: Body) -> None:
    body["spec"]["slo"]["latency"] = "15"


def unknown_gpu(body: Body) -> None:
    body["spec"]["gpu"]["type"] = "A100-81GB"


def unknown_model(body: Body) -> None:
    body["spec"]["model"] = {"name": "meta-llama/Llama-9-8B"}


def no_target(body: Body) -> None:
    del body["spec"]["scaleTargetRef"]


def no_slo(body: Body) -> None:
    body["spec"]["slo"] = {}


def long_name(body: Body) -> None:
    body["metadata"]["name"] = "n" * 300


def long_model(body: Body) -> None:
    body["spec"]["model"]["name"] = "m" * 300


def long_target(body: Body) -> None:
    body["spec"]["scaleTargetRef"]["name"] = "t" * 300


def min_above_max(body: Body) -> None:
    body["spec"]["scaling"]["minReplicas"] = 5


def huge_replicas(body: Body) -> None:
    body["spec"]["scaling"]["maxReplicas"] = 10**12


def unknown_field(body: Body) -> None:
    body["spec"]["engine"]["maxBatch"] = 8


def wrong_type(body: Body) -> None:
    body["spec"]["scaling"]["maxReplicas"] = "many"


def no_spec(body: Body) -> None:
    del body["spec"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (negative_rate, "spec.traffic.rate"),
        (no_duration, "spec.slo.latency"),
        (unitless_duration, "spec.slo.latency"),
        (unknown_gpu, "GpuUnknown"),
        (unknown_model, "ModelUnknown"),
        (no_target, "spec.scaleTargetRef"),
        (no_slo, "slo"),
        (long_name, "metadata.name"),
        (long_model, "spec.model.name"),
        (long_target, "spec.scaleTargetRef.name"),
        (min_above_max, "minReplicas"),
        (huge_replicas, "spec.scaling.maxReplicas"),
        (unknown_field, 'unknown field "spec.engine.maxBatch"'),
        (wrong_type, "spec.scaling.maxReplicas"),
        (no_spec, "spec"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_bad_input_is_refused_and_the_field_is_named(
    house: House, namespace: str, change: Callable[[Body], None], told: str
) -> None:
    code, text = applied(house.plane, namespace, changed(change))
    assert code != 0
    assert told in text
    assert "InternalError" not in text
    assert len(text) < 4000


def test_a_missing_target_is_admitted_and_told_in_a_condition(house: House, namespace: str) -> None:
    assert applied(house.plane, namespace, example("gpt3"))[0] == 0

    def told() -> bool:
        condition = house.condition(namespace, "gpt3", "AbleToScale")
        assert condition.get("reason") == "TargetMissing", condition
        return "gpt3" in condition["message"]

    eventually(told, TOLD_S, "the condition names the missing target")


def test_of_two_services_on_one_target_the_second_is_warned_and_writes_nothing(
    house: House, namespace: str
) -> None:
    first, second = example("gpt3"), example("gpt3")
    second["metadata"]["name"] = "gpt3-too"
    assert applied(house.plane, namespace, first)[0] == 0
    eventually(
        lambda: house.status(namespace, "gpt3"), TOLD_S, "the operator knows the first service"
    )
    code, text = applied(house.plane, namespace, second)
    assert code == 0
    assert "Warning: " in text
    assert "TargetConflict" in text

    def told() -> bool:
        older = house.condition(namespace, "gpt3", "Conflict")
        younger = house.condition(namespace, "gpt3-too", "Conflict")
        assert younger.get("reason") == "TargetConflict", younger
        # Creation times are whole seconds; of one second the first by name goes first: gpt3.
        return (older["status"], younger["status"]) == ("False", "True")

    house.plane.kubectl(
        "apply", "-n", namespace, "-f", str(EXAMPLES / "gpt3-deployment.yaml"), check=True
    )
    eventually(told, TOLD_S, "the younger service has the condition Conflict")


def test_after_all_this_the_operator_runs_without_a_traceback(house: House) -> None:
    before = house.ticks()
    eventually(lambda: house.ticks() > before, TOLD_S, "the operator ticks on")
    assert house.installation.tracebacks() == []
