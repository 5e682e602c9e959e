"""``sojourn completion``: the script a shell completes our commands with."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from sojourn.cli import screen

COMPLETE_VARIABLE = "_SOJOURN_COMPLETE"


class Shell(StrEnum):
    """Shells with a script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
    POWERSHELL = "powershell"


def completion(
    shell: Annotated[Shell, typer.Argument(help="Shell to write the script for.")],
    kubectl: Annotated[
        bool,
        typer.Option(
            "--kubectl",
            help="The kubectl_complete-sojourn file that lets kubectl complete its plugin.",
        ),
    ] = False,
) -> None:
    """Print a completion script: source <(sojourn completion bash)."""
    from typer._completion_shared import get_completion_script  # noqa: PLC0415

    if kubectl:
        screen.echo(KUBECTL)
        return
    script = get_completion_script(
        prog_name="sojourn", complete_var=COMPLETE_VARIABLE, shell=shell.value
    )
    screen.echo(script)


KUBECTL = f"""#!/bin/sh
# Save as kubectl_complete-sojourn in the PATH, executable: kubectl calls it with the words so far.
words="sojourn $*"
COMP_WORDS="$words" COMP_CWORD=$# {COMPLETE_VARIABLE}=complete_bash sojourn
echo ":4"
"""
