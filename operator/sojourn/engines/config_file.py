"""The file after ``--config``, as the words it stands for.

vLLM and SGLang put a file's entries before the command line, so that the command line wins; both
read the file only when its path is a word of its own (vllm/utils/argparse_utils.py,
sglang/srt/server_args_config_parser.py). TensorRT-LLM lays its file over the command line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sojourn.engines.command import CommandLine
from sojourn.engines.engine import Engine
from sojourn.engines.script import Said
from sojourn.engines.surroundings import Surroundings, file_of


@dataclass(frozen=True)
class FileWords:
    """Words of a file; why they are not known; what the engine makes of them."""

    words: tuple[Said, ...] = ()
    unknown: str = ""
    remarks: tuple[str, ...] = ()


def words_of_file(
    engine: Engine, line: CommandLine, container: Mapping[str, Any], around: Surroundings
) -> FileWords:
    """What the configuration file of an engine adds to its command line."""
    flag = engine.flags.get("config")
    if flag is None:
        return FileWords()
    for i, word in enumerate(line.words):
        name, equals, value = word.text.partition("=")
        if name.replace("_", "-") not in flag.spellings:
            continue
        if equals and not engine.config_wins:
            remark = f"{name} is read only with its path as the next word: {word.text} is ignored."
            return FileWords(remarks=(remark,))
        path = word if equals else _after(i, line)
        if path.why:
            return FileWords(unknown=f"{name} {path.text}: {path.why}")
        held, why = file_of(value if equals else path.text, container, around)
        return FileWords(unknown=why) if held is None else FileWords(tuple(_words(held)))
    return FileWords()


def _after(at: int, line: CommandLine) -> Said:
    """The word after a place; an empty one at the end."""
    return line.words[at + 1] if at + 1 < len(line.words) else Said("")


def _words(held: Mapping[str, Any], prefix: str = "--") -> Iterator[Said]:
    for key, value in held.items():
        name = f"{prefix}{key}"
        if isinstance(value, bool):
            yield Said(name if value else f"{prefix}no-{key}")
        elif isinstance(value, Mapping):
            yield Said(f"{name}={json.dumps(value, default=str)}")
            yield from _words(value, f"{name}.")
        elif isinstance(value, list):
            yield Said(name)
            yield from (Said(str(item)) for item in value)
        elif value is not None:
            yield Said(f"{name}={value}")
