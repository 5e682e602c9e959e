"""Engines: what is particular to vLLM, SGLang, TGI, TensorRT-LLM, Triton and the rest.

Pure look-ups over one data file: metric names by role and version, flags and whether they need a
restart, how an engine batches. A new engine is one entry in ``data/engines.json`` with its source
and a sample of its metrics in ``tests/data/metrics_samples``; nothing else changes.
"""

from sojourn.engines.catalogue import EngineUnknown, all_engines, detect, find
from sojourn.engines.engine import Engine, Flag, Metric
from sojourn.engines.flags import Flags, FlagSource, FlagValue, read_flags, refers_to
from sojourn.engines.surroundings import Surroundings
from sojourn.engines.version import Version, version_of_image

__all__ = [
    "Engine",
    "EngineUnknown",
    "Flag",
    "FlagSource",
    "FlagValue",
    "Flags",
    "Metric",
    "Surroundings",
    "Version",
    "all_engines",
    "detect",
    "find",
    "read_flags",
    "refers_to",
    "version_of_image",
]
