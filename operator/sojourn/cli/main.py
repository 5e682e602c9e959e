"""The command line's entry: one typer application, rooms imported only when a command runs."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from sojourn.errors import SojournError

app = typer.Typer(
    name="sojourn",
    help="Admission, autoscaling and planning of LLM inference services.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)


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
    from sojourn.controller import app as controller  # noqa: PLC0415
    from sojourn.controller.settings import load  # noqa: PLC0415

    _set_up_logging(log_level)
    asyncio.run(controller.main(load(settings), kubeconfig))


def _set_up_logging(level: str) -> None:
    logging.basicConfig(
        level=level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    # A line for each watch event and request would bury the operator's own words; denials are
    # logged by the operator itself, with their reasons.
    logging.getLogger("kopf.objects").addFilter(_is_trouble)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)


def _is_trouble(record: logging.LogRecord) -> bool:
    denial = record.getMessage().startswith("Webhook ")
    return record.levelno >= logging.WARNING and not denial


@app.command()
def version() -> None:
    """Print the version."""
    from importlib.metadata import version as installed  # noqa: PLC0415

    typer.echo(installed("sojourn"))


def run() -> None:
    """Run the command line; an expected error is one line on standard error, exit code 2."""
    try:
        app()
    except SojournError as exc:
        typer.echo(f"sojourn: {exc}", err=True)
        raise SystemExit(2) from exc
