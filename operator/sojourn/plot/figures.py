"""The figures of the documentation: ``python -m sojourn.plot.figures docs/figures`` writes them.

Every number is the model's own for the shipped examples, so a changed model changes its figures.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml
from matplotlib.figure import Figure

from sojourn import api
from sojourn.catalogue import Catalogue
from sojourn.decide import resolve
from sojourn.decide.capacity import Serving
from sojourn.facts.memory import Footprint
from sojourn.facts.policy import Policy
from sojourn.facts.replica import DynamicReplica
from sojourn.facts.service_time import LinearServiceTime
from sojourn.model import memory as memory_model
from sojourn.model.choose import model_for
from sojourn.plot import curves, load, memory, style, surrogate, tails, tradeoff

GPT3_LAW = LinearServiceTime(0.050, 0.0005)
GPT3_RATE_PER_S = 100.0
"""The book's example: T_fixed 50 ms, t_req 0.5 ms, 100 requests/s."""

_MEMORY = (
    ("Llama 3.1 8B on one A10G", "Llama-3.1-8B", "A10G", 1, 8192),
    ("Llama 3.1 8B on one H100", "Llama-3.1-8B", "H100", 1, 8192),
    ("Llama 2 70B on four A100-80GB", "Llama-2-70b", "A100-80GB", 4, 4096),
    ("Llama 2 70B on four A100-40GB", "Llama-2-70b", "A100-40GB", 4, 4096),
    ("gpt-oss-120b on one H100", "gpt-oss-120b", "H100", 1, 16384),
    ("DeepSeek-V3 on eight H200", "DeepSeek-V3", "H200", 8, 32768),
)
"""The examples of docs/explanation/memory.md: title, model, card, tensor parallelism, maxLength."""

_ENGINE_VERSION = "0.22.0"


def every(examples: Path) -> dict[str, Figure]:
    """Each figure by its file name, of the manifests in ``examples``."""
    gpt3 = _serving(examples / "gpt3.yaml", {"maxBatchSize": {"min": 1, "max": 128}})
    policy = Policy()
    thresholds = (policy.low_utilisation, policy.high_utilisation)
    return {
        "gpt3-tradeoff.svg": tradeoff.draw(curves.trade_off(gpt3, "GPT-3", GPT3_RATE_PER_S)),
        "gpt3-utilization.svg": load.draw(curves.load_curve(gpt3, "GPT-3", 8, thresholds)),
        "gpt3-p99.svg": tails.draw(curves.tail_curves(gpt3, "GPT-3", 8, 1, GPT3_RATE_PER_S)),
        "surrogate.svg": surrogate.draw(
            curves.surrogacy(
                DynamicReplica(GPT3_LAW, 8), GPT3_RATE_PER_S, "GPT-3", tuple(range(1, 65))
            )
        ),
        "memory.svg": memory.draw(
            [_memory_bar(*row) for row in _MEMORY], "Where the memory of a GPU goes (vLLM 0.22)"
        ),
    }


def write(folder: Path, examples: Path) -> list[Path]:
    """Write every figure; the paths written."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, figure in every(examples).items():
        paths.append(folder / name)
        style.save(figure, paths[-1])
    return paths


def _serving(path: Path, engine: dict[str, Any]) -> Serving:
    body = yaml.safe_load(path.read_text())
    body["spec"]["engine"] |= engine
    return _resolved(body)


def _resolved(body: dict[str, Any]) -> Serving:
    service = resolve.resolve(api.read(body), Catalogue()).service
    assert service is not None  # the examples are ours
    return Serving(service, model_for(service.replica))


def _memory_bar(title: str, model: str, gpu: str, ranks: int, length: int) -> curves.MemoryBar:
    catalogue = Catalogue()
    footprint = Footprint(
        architecture=catalogue.model(model),
        gpu=catalogue.gpu(gpu),
        tensor_parallel=ranks,
        engine_version=_ENGINE_VERSION,
        max_length_tokens=length,
    )
    answer = memory_model.answer(footprint)
    held = f"room for {answer.max_concurrent} requests of {length:,} tokens"
    return curves.bar_of(answer, footprint.gpu.memory_bytes, title, held)


if __name__ == "__main__":
    root = Path(__file__).resolve().parents[3]
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else root / "docs" / "figures"
    for written in write(target, root / "deploy" / "examples"):
        print(f"wrote {written}")
