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


SECRET = {"valueFrom": {"secretKeyRef": {"name": "hush", "key": "k"}}}


def notes(review: Review) -> list[str]:
    return [f.message for f in review.findings if f.reason is Reason.ARGUMENT_UNREADABLE]


@pytest.mark.parametrize(
    ("args", "options", "told"),
    [
        pytest.param(
            ["--tensor-parallel-size=$(TP)", f"--max-model-len={LONG}"],
            {"env": [{"name": "TP", **SECRET}]},
            "TP is set by a Secret (hush)",
            id="a Secret",
        ),
        pytest.param(
            ["--config", "/etc/v.yaml", f"--max-model-len={LONG}"],
            {},
            "/etc/v.yaml is a file of the image",
            id="a file of the image",
        ),
        pytest.param(
            ["--cpu-offload-gb=20", f"--max-model-len={LONG}"],
            {},
            "--cpu-offload-gb keeps part of the weights outside the GPU",
            id="what the memory model does not know",
        ),
        pytest.param(
            ["--kv-cache-memory-bytes=8G", f"--max-model-len={LONG}"],
            {},
            "--kv-cache-memory-bytes fixes the KV cache",
            id="a KV cache of fixed size",
        ),
        pytest.param(
            ["-q", "secret-sauce", f"--max-model-len={LONG}"],
            {},
            "--quantization secret-sauce",
            id="a quantisation nobody knows",
        ),
    ],
)
def test_what_is_not_known_is_noted_and_not_judged(
    args: list[str], options: dict[str, Any], told: str
) -> None:
    review = judged(*args, **options)
    assert review.denial is None
    assert review.warnings == ()
    assert told in notes(review)[0]


def test_a_length_nobody_knows_leaves_the_weights_to_be_judged() -> None:
    env = [{"name": "LEN", **SECRET}]
    assert judged("--max-model-len=$(LEN)", env=env).denial is None
    body = deployment(["--model=meta-llama/Llama-3.1-70B-Instruct", "--max-model-len=$(LEN)"])
    body["spec"]["template"]["spec"]["containers"][0]["env"] = env
    assert "WontStart" in (guard().review(body, None).denial or "")


def test_a_length_the_engine_shortens_until_it_fits_is_no_reason_to_refuse() -> None:
    assert judged("--max-model-len=auto").denial is None
    assert judged("--max-model-len=-1").denial is None
    assert judged("--max-model-len", "128k").denial is not None


def test_quantised_weights_and_cache_are_judged_by_their_bytes() -> None:
    large = "--model=meta-llama/Llama-3.1-70B-Instruct"
    options: dict[str, Any] = {"card": "NVIDIA-H100-80GB-HBM3"}
    plain = deployment([large, "--max-model-len=2048"], **options)
    assert guard().review(plain, None).denial is not None
    awq = deployment([large, "--max-model-len=2048", "--quantization=awq"], **options)
    assert guard().review(awq, None).denial is None
    small = judged("--max-model-len=60000")
    assert small.denial is not None
    assert judged("--max-model-len=60000", "--kv-cache-dtype=fp8_e5m2").denial is None


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--max-model-len", "8,192"], "--max-model-len 8,192 is no whole number"),
        (["--max-model-len=1.5K"], "write 1.5k for 1,000s"),
        (["-tp=3"], "attentionHeads is 32: expected a multiple of tensorParallel 3"),
        (["--max-model-len=200000", "--kv-cache-dtype=fp8"], "exceeds the 131072 tokens"),
        (["--max-num-batched-tokens=512", "--max-num-seqs=1024"], "Use at least 1024"),
        (["--max-num-seqs=1k"], "--max-num-seqs 1k is no whole number"),
        (["--gpu-memory-utilization=90"], "Use 0 to 1"),
        (["--gpu-memory-utilization=90%"], "is no number"),
        (["--max-num-seqs=$(SOJOURN_MAX_BATCH)"], "Set SOJOURN_MAX_BATCH in the container's env"),
        (["--max-model-len 8192"], "write --max-model-len=8192"),
        (["--config=/etc/v.yaml"], "is ignored"),
    ],
)
def test_what_the_engine_would_not_take_is_warned_of(args: list[str], told: str) -> None:
    review = judged(*args)
    assert any(told in line for line in review.warnings), review.warnings


@pytest.mark.parametrize(
    ("image", "args"),
    [
        ("lmsysorg/sglang:v0.5", ["--chunked-prefill-size=512", "--max-running-requests=1024"]),
        ("nvcr.io/nvidia/tensorrt-llm/release:1.2", ["--max_num_tokens=1024"]),
    ],
)
def test_other_engines_may_have_fewer_tokens_a_step_than_requests(
    image: str, args: list[str]
) -> None:
    assert guard().review(deployment(args, image=image), None).warnings == ()


def test_ranks_in_other_pods_need_no_gpus_in_this_one() -> None:
    head = "ray start --head && vllm serve m --model {} -tp 4 -pp 2 --max-model-len 4096"
    script = head.format("meta-llama/Llama-3.1-8B-Instruct")
    spread = deployment([], command=["bash", "-c", script])
    assert guard().review(spread, None).denial is None
    assert judged("-tp=4", "--nnodes=4", "--max-model-len=4096").denial is None
    assert judged("-dp=4", "--data-parallel-size-local=1", "--max-model-len=4096").denial is None
    assert judged("-tp=4", "--max-model-len=4096").denial is not None


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("StatefulSet", ("template",)),
        ("LeaderWorkerSet", ("leaderWorkerTemplate", "leaderTemplate")),
        ("RayCluster", ("headGroupSpec", "template")),
        ("RayService", ("rayClusterConfig", "headGroupSpec", "template")),
    ],
)
def test_other_workloads_keep_their_template_elsewhere(kind: str, path: tuple[str, ...]) -> None:
    template = deployment([MODEL, f"--max-model-len={LONG}"])["spec"]["template"]
    spec: dict[str, Any] = template
    for name in reversed(path):
        spec = {name: spec}
    review = guard().review({"kind": kind, "metadata": {"name": "x"}, "spec": spec}, None)
    assert review.denial is not None
    assert review.rejected[0].field == f"spec.{'.'.join(path)}.spec.containers[engine].args"


def test_a_time_sliced_card_is_warned_of() -> None:
    # FC-070
    body = deployment([MODEL, "--max-model-len=4096"], card="NVIDIA-A100-SXM4-80GB-SHARED")
    (line,) = guard().review(body, None).warnings
    assert line.startswith("GPUShared: NVIDIA-A100-SXM4-80GB-SHARED is shared with other pods")


@pytest.mark.parametrize(
    ("size", "ranks", "denied", "unused"),
    [(1, 2, True, False), (2, 2, False, False), (4, 2, False, True), (2, 4, True, False)],
)
def test_a_group_needs_a_gpu_for_each_rank(
    size: int, ranks: int, denied: bool, unused: bool
) -> None:
    # FC-074
    template = deployment([MODEL, f"-tp={ranks}", "--max-model-len=4096"])["spec"]["template"]
    spec = {"leaderWorkerTemplate": {"size": size, "workerTemplate": template}}
    body = {"kind": "LeaderWorkerSet", "metadata": {"name": "x"}, "spec": spec}
    review = guard().review(body, None)
    assert (review.denial is not None) is denied
    if denied:
        assert f"started on {ranks} GPUs and the group of {size} pod" in (review.denial or "")
    assert any(line.startswith("GPUsUnused") for line in review.warnings) is unused


def test_a_slice_of_a_card_has_the_memory_of_the_slice() -> None:
    # FC-071
    args = [MODEL, "--max-model-len=4096"]
    body = deployment(args, gpus=None, card="NVIDIA-A100-SXM4-80GB")
    container = body["spec"]["template"]["spec"]["containers"][0]
    container["resources"] = {"limits": {"nvidia.com/mig-1g.10gb": 1}}
    assert guard().review(body, None).denial is not None
    container["resources"] = {"limits": {"nvidia.com/mig-3g.40gb": 1}}
    assert guard().review(body, None).denial is None
