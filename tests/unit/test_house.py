"""The house itself: nothing shadows the standard library, targets explain themselves."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGETS = {"setup", "demo", "test", "test-all", "lint", "generate", "verify", "bench", "build"}


def test_import_operator_is_the_standard_library_from_the_repository_root() -> None:
    code = "import operator; print(operator.__file__); operator.itemgetter"
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert not Path(found.stdout.strip()).is_relative_to(ROOT)
    assert not (ROOT / "operator" / "__init__.py").exists()


def test_every_target_of_the_makefile_has_a_line_of_help() -> None:
    # Under `make test` this make is a nested one, which would announce its folder.
    command = ["make", "--no-print-directory", "help"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    helped = {line.split()[0] for line in shown.stdout.splitlines() if line.strip()}
    declared = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert helped == declared
    assert helped >= TARGETS


def test_every_dependency_says_in_a_line_why_it_is_there() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    blocks = re.findall(r"^(?:dependencies|dev) = \[\n(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.strip()]
    assert len(lines) > 15
    assert all(re.search(r'"[^"]+",\s+# \w', line) for line in lines)
