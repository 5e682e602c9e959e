"""Step time estimated from model and GPU, for services without a profile."""

from __future__ import annotations

from dataclasses import dataclass

from sojourn.errors import ModelDomainError
from sojourn.facts.memory import Footprint
from sojourn.facts.service_time import IterationTime
from sojourn.model import weights


@dataclass(frozen=True)
class Estimate:
    """An estimated step time."""

    iteration: IterationTime


def estimate(footprint: Footprint) -> Estimate:
    """Step time of a footprint: weights read once a step, two FLOPs a parameter and token.

    Raises:
        ModelDomainError: the GPU's bandwidth or compute is not known.
    """
    gpu, model = footprint.gpu, footprint.architecture
    if gpu.bandwidth_bytes_per_s is None or gpu.dense_fp16_flop_per_s is None:
        raise ModelDomainError("GPU bandwidth and compute", None, "figures; declare serviceTime")
    ranks = footprint.tensor_parallel * footprint.pipeline_parallel
    value_bytes = weights.value_bytes(footprint.precision or model.precision)
    read_s = model.active_parameters * value_bytes / ranks / gpu.bandwidth_bytes_per_s / 0.7
    flop_s = 2 * model.active_parameters / ranks / gpu.dense_fp16_flop_per_s / 0.5
    return Estimate(IterationTime(read_s + 0.003, flop_s, flop_s))
