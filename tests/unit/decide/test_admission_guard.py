"""The guard: whether a workload would start with the arguments it is about to get."""

from __future__ import annotations

from typing import Any

import pytest

from sojourn.catalogue import Catalogue
from sojourn.controller.guard_review import Guard
from sojourn.controller.registry import Registry
from sojourn.controller.review import Review
from sojourn.facts.finding import Verdict
from sojourn.facts.reasons import Reason

NAMES = Catalogue()
MODEL = "--model=meta-llama/Llama-3.1-8B-Instruct"
CARD = "NVIDIA-A10G"


def deployment(
    args: list[str], *, gpus: int | None = 1, card: str | None = CARD, **container: Any
) -> dict[str, Any]:
    engine: dict[str, Any] = {
        "name": "engine",
        "image": "vllm/vllm-openai:v0.17.0",
        "args": args,
        **container,
    }
    if gpus is not None:
        engine["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    pod: dict[str, Any] = {"containers": [engine]}
    if card is not None:
        pod["nodeSelector"] = {"nvidia.com/gpu.product": card}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "chat", "namespace": "prod"},
        "spec": {"template": {"spec": pod}},
    }


def guard(*services: dict[str, Any]) -> Guard:
    registry = Registry(NAMES)
    for body in services:
        registry.put(body, 0.0)
    return Guard(registry, NAMES.gpus())


def judged(*args: str, **options: Any) -> Review:
    return guard().review(deployment([MODEL, *args], **options), None)


LONG = "131072"


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"args": ["--max-model-len", LONG]}, id="flag value"),
        pytest.param({"args": [f"--max-model-len={LONG}"]}, id="flag=value"),
        pytest.param({"args": [f"--max_model_len={LONG}"]}, id="underscores"),
        pytest.param(
            {
                "args": ["--max-model-len=$(LENGTH)"],
                "env": [{"name": "LENGTH", "value": LONG}],
            },
            id="environment variable",
        ),
    ],
)
def test_a_length_that_does_not_fit_is_refused_however_it_is_written(
    options: dict[str, Any],
) -> None:
    review = judged(*options.pop("args"), **options)
    assert review.denial is not None
    assert review.denial.startswith("WontStart: one request of 131072 tokens needs")
    assert review.rejected[0].field == "spec.template.spec.containers[engine].args"


def test_a_shell_script_is_read_too() -> None:
    script = f"vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len {LONG}"
    body = deployment([], command=["sh", "-c", script])
    assert guard().review(body, None).denial is not None


def test_what_fits_passes() -> None:
    assert judged("--max-model-len=4096", "--max-num-seqs=16").denial is None


def test_two_gpus_of_which_one_is_used_do_not_help_and_the_message_says_so() -> None:
    # FC-060
    body = deployment([MODEL, "--max-model-len=8192"], gpus=2, card="Tesla-T4")
    review = guard().review(body, None)
    assert review.denial is not None
    assert {f.reason for f in review.findings} >= {Reason.WONT_START, Reason.GPUS_UNUSED}
    assert "1 of 2 GPUs are not used" in review.warnings[-1]
    assert "tensorParallel: 2" in review.denial
    mended = deployment(
        [MODEL, "--max-model-len=8192", "--tensor-parallel-size=2"], gpus=2, card="Tesla-T4"
    )
    assert guard().review(mended, None).denial is None


def test_more_ranks_than_gpus_are_refused() -> None:
    denial = judged("--tensor-parallel-size=4", "--max-model-len=4096", gpus=2).denial
    assert denial is not None
    assert "started on 4 GPUs and the container asks for 2" in denial


def test_without_model_or_card_nothing_is_judged() -> None:
    assert judged(f"--max-model-len={LONG}", card=None) == Review()
    assert guard().review(deployment([f"--max-model-len={LONG}"]), None) == Review()


def test_the_inference_service_says_what_the_command_line_does_not() -> None:
    service = {
        "apiVersion": "serving.sojourn.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": "prod", "uid": "u"},
        "spec": {
            "model": {"name": "meta-llama/Llama-3.1-8B-Instruct", "maxLength": 4096},
            "gpu": {"type": "A10G"},
            "slo": {"latency": "10s"},
            "scaleTargetRef": {"name": "chat"},
        },
    }
    body = deployment([f"--max-model-len={LONG}"], card=None)
    assert guard(service).review(body, None).denial is not None


def test_replicas_and_labels_may_change_whatever_the_arguments() -> None:
    old = deployment([MODEL, f"--max-model-len={LONG}"])
    new = {**old, "spec": {**old["spec"], "replicas": 5}}
    assert guard().review(new, old) == Review()


def test_a_violation_that_is_there_already_only_warns() -> None:
    old = deployment([MODEL, f"--max-model-len={LONG}"])
    new = deployment([MODEL, f"--max-model-len={LONG}", "--served-model-name=x"])
    review = guard().review(new, old)
    assert review.denial is None
    assert {f.verdict for f in review.findings} == {Verdict.WARN}


def test_a_workload_that_runs_no_known_engine_is_left_alone() -> None:
    body = deployment([], image="nginx:1.27")
    assert guard().review(body, None) == Review()


def test_the_bypass_annotation_counts_here_too() -> None:
    body = deployment([MODEL, f"--max-model-len={LONG}"])
    body["metadata"]["annotations"] = {"serving.sojourn.dev/admission-bypass": "trial"}
    assert guard().review(body, None).bypassed == "trial"
