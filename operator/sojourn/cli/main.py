"""The command line's entry: one typer application, rooms imported only when a command runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from sojourn.cli import exits
from sojourn.cli.command import command
from sojourn.cli.completion import COMPLETE_VARIABLE, completion
from sojourn.cli.curve import CurveOptions, curve
from sojourn.cli.doctor import DoctorOptions, doctor
from sojourn.cli.explain import ExplainOptions, explain
from sojourn.cli.names import SearchOptions, gpus, models
from sojourn.cli.plan import PlanOptions, plan
from sojourn.cli.profile import ProfileOptions, profile
from sojourn.cli.simulate import SimulateOptions, simulate
from sojourn.cli.validate import ValidateOptions, validate

EPILOG = "Exit codes: " + "; ".join(f"{code} {text}" for code, text in exits.MEANING.items()) + "."

app = typer.Typer(
    name="sojourn",
    help="Admission, autoscaling and planning of LLM inference services.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def options(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show where an error came from.", is_eager=True)
    ] = False,
) -> None:
    """Admission, autoscaling and planning of LLM inference services."""
    if debug:
        os.environ[exits.DEBUG_VARIABLE] = "1"


command(app, PlanOptions)(plan)
command(app, CurveOptions)(curve)
command(app, ExplainOptions)(explain)
command(app, ProfileOptions)(profile)
command(app, ValidateOptions)(validate)
command(app, SimulateOptions)(simulate)
command(app, DoctorOptions)(doctor)
command(app, SearchOptions)(models)
command(app, SearchOptions)(gpus)


@app.command()
def operator(
    settings: Annotated[Path, typer.Option(help="YAML file with the operator's settings.")] = Path(
        "/etc/sojourn/settings.yaml"
    ),
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Kubeconfig; inside a cluster none is needed.")
    ] = None,
    log_level: Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = "INFO",
) -> None:
    """Run the operator: watch InferenceServices, answer admission, scale their targets."""
    from sojourn.cli import operator as running  # noqa: PLC0415

    running.run(settings, kubeconfig, log_level)


@app.command()
def version() -> None:
    """Print the version."""
    from importlib.metadata import version as installed  # noqa: PLC0415

    typer.echo(installed("sojourn"))


app.command()(completion)


def run() -> None:
    """Run the command line; an expected error is one line on standard error and an exit code."""
    plugin = Path(sys.argv[0]).name.startswith("kubectl-")
    program = "kubectl sojourn" if plugin else "sojourn"

    def main() -> None:
        app(prog_name=program, complete_var=COMPLETE_VARIABLE)

    if COMPLETE_VARIABLE in os.environ:
        from typer._completion_classes import completion_init  # noqa: PLC0415

        completion_init()
    debug = "--debug" in sys.argv or bool(os.environ.get(exits.DEBUG_VARIABLE))
    raise SystemExit(exits.guarded(main, debug))
