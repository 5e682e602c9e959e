"""The reference page of verdicts names every reason, and its examples are what is printed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from sojourn.decide import admission
from sojourn.decide.proposal import Proposal
from sojourn.facts.declaration import (
    Batching,
    DeclaredEngine,
    DeclaredGpu,
    DeclaredModel,
    KvLayout,
)
from sojourn.facts.reasons import Reason
from sojourn.facts.service_time import LinearServiceTime
from sojourn.facts.situation import TargetPods
from tests.unit.decide.builders import proposal

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "verdicts.md"
QWEN = {"model": DeclaredModel("Qwen/Qwen2.5-7B-Instruct", max_length_tokens=4096)}
VLLM = DeclaredEngine("vllm", "0.17", Batching.DYNAMIC, max_batch=16)

CHANGES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("max batch pinned to 4", {"engine": {"min_batch": 4, "max_batch": 4}}),
    (
        "Llama-2-70b on one A10G",
        {
            "model": DeclaredModel("meta-llama/Llama-2-70b-hf", precision="fp16"),
            "gpu": DeclaredGpu("A10G"),
            "engine": VLLM,
        },
    ),
    (
        "contiguous cache, max batch 64",
        {
            "engine": DeclaredEngine(
                "custom", batching=Batching.DYNAMIC, max_batch=64, kv_layout=KvLayout.CONTIGUOUS
            )
        },
    ),
    (
        "Qwen2.5-7B on A10G at 97 % with max batch 1024",
        {
            **QWEN,
            "gpu": DeclaredGpu("A10G", memory_utilisation=0.97),
            "engine": replace(VLLM, max_batch=1024),
        },
    ),
    (
        "the same with max batch 512",
        {
            **QWEN,
            "gpu": DeclaredGpu("A10G", memory_utilisation=0.97),
            "engine": replace(VLLM, max_batch=512),
        },
    ),
    ("SLO of 40 ms", {"slo": {"latency_s": 0.04}}),
    ("SLO of 105 ms", {"slo": {"latency_s": 0.105}}),
    ("max batch 6", {"engine": {"max_batch": 6}}),
    ("maxBatchWait 200 ms", {"engine": {"max_batch_wait_s": 0.2}}),
    ("queueCapacity 4", {"engine": {"queue_capacity": 4}}),
    ("minReplicas 0", {"scaling": {"min_replicas": 0}}),
    (
        "arrivalRateQuery sum(rate(vllm:request_success_total[2m]))",
        {"metrics": {"arrival_rate_query": "sum(rate(vllm:request_success_total[2m]))"}},
    ),
    (
        "Llama-3.1-8B at 200,000 tokens, max batch 1024 with 512 tokens a step",
        {
            "model": DeclaredModel("meta-llama/Llama-3.1-8B-Instruct", max_length_tokens=200_000),
            "engine": replace(VLLM, max_batch=1024, max_batched_tokens=512),
        },
    ),
    (
        "Llama-3.1-8B on a time-sliced card",
        {
            "model": DeclaredModel("meta-llama/Llama-3.1-8B-Instruct", max_length_tokens=4096),
            "gpu": DeclaredGpu("NVIDIA-A100-SXM4-80GB-SHARED"),
        },
    ),
    ("no traffic declared", {"traffic": {"peak_rate_per_s": None}}),
)
ELSEWHERE = {
    # Found while reading and resolving, or by the guard: shown in the table alone.
    Reason.INVALID_OBJECT,
    Reason.MODEL_UNKNOWN,
    Reason.GPU_UNKNOWN,
    Reason.GPUS_UNUSED,
    Reason.ARGUMENT_UNREADABLE,
    Reason.PROFILE_MISSING,
}


def examples() -> str:
    """The page's section: each change with the findings it leads to."""
    lines = []
    conflict: Proposal = replace(proposal(), other_owners=("HorizontalPodAutoscaler gpt3",))
    slow = proposal(
        service_time=LinearServiceTime(30.0, 0.5),
        slo={"latency_s": 400.0},
        traffic={"peak_rate_per_s": 0.1},
    )
    cases = [
        *((name, proposal(**change)) for name, change in CHANGES),
        (
            "T(B) = 30 s + 0.5 s B, 0.1 requests/s, the target's grace 30 s",
            replace(slow, pods=TargetPods(30.0)),
        ),
        (
            "the target's pods carry another Deployment's labels",
            replace(proposal(), pods=TargetPods(overlapping=("Deployment other",))),
        ),
        ("an HPA", conflict),
    ]
    for name, case in cases:
        lines.append(f"**{name}**\n")
        for finding in admission.admit(case):
            lines.append(f"- {finding.verdict} `{finding.reason}` ({finding.field}): ")
            lines[-1] += finding.message
        lines.append("")
    return "\n".join(lines)


def test_every_example_is_what_is_printed() -> None:
    told = f"replace the examples in {PAGE.name} by:\n{examples()}"
    assert examples() in PAGE.read_text(), told


def test_every_reason_of_admission_has_its_row() -> None:
    text = PAGE.read_text()
    shown = {reason for reason in Reason if f"| `{reason}` |" in text}
    printed = {reason for reason in Reason if f"`{reason}` (" in text}
    assert printed <= shown
    assert shown - printed == ELSEWHERE
