"""``sojourn profile``: measure service time, fit it, judge it, write a ServingProfile."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sojourn.cli import exits, screen
from sojourn.cli.exits import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from sojourn.cli.profiling.fitting import Fitted, Identity
    from sojourn.cli.profiling.points import Point

_SOURCE, _WHAT, _RUN = "Source, one of", "What is measured", "A run against an endpoint"


def _option(help: str, *names: str, panel: str, metavar: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, metavar=metavar)


@dataclass(frozen=True)
class SourceOptions:
    """Where measurements come from."""

    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Results of GuideLLM, vLLM bench, SGLang bench, genai-perf, aiperf or"
            " perf_analyzer.",
            metavar="[FILE]...",
        ),
    ] = None
    endpoint: Annotated[
        str | None,
        _option("A live server: its base address.", "--endpoint", panel=_SOURCE, metavar="URL"),
    ] = None
    prometheus: Annotated[
        str | None,
        _option("History of a running service.", "--prometheus", panel=_SOURCE, metavar="URL"),
    ] = None
    pods: Annotated[
        str,
        _option("History: pods, as a regular expression.", "--pods", panel=_SOURCE, metavar="RE"),
    ] = ".+"
    namespace: Annotated[
        str,
        _option("History: namespace.", "--namespace", "-n", panel=_SOURCE, metavar="NAME"),
    ] = "default"
    hours: Annotated[
        float, _option("History: how far back.", "--hours", panel=_SOURCE, metavar="HOURS")
    ] = 6.0


@dataclass(frozen=True)
class IdentityOptions:
    """What the profile is of."""

    model: Annotated[str, _option("Catalogue name.", "--model", "-m", panel=_WHAT, metavar="NAME")]
    gpu: Annotated[str, _option("GPU type.", "--gpu", "-g", panel=_WHAT, metavar="TYPE")]
    tensor_parallel: Annotated[
        int, _option("GPUs that share each layer.", "--tp", panel=_WHAT, metavar="N")
    ] = 1
    engine: Annotated[str, _option("Engine.", "--engine", panel=_WHAT, metavar="NAME")] = "vllm"
    name: Annotated[
        str | None,
        _option("Of the ServingProfile.", "--name", panel=_WHAT, metavar="NAME"),
    ] = None
    dynamic: Annotated[
        bool,
        typer.Option(
            "--dynamic",
            help="Batches start and end together (Triton): fit the time of a batch.",
            rich_help_panel=_WHAT,
        ),
    ] = False
    max_wait: Annotated[
        str,
        _option(
            "What a dynamic batcher waits for a batch to fill; taken off.",
            "--max-wait",
            panel=_WHAT,
            metavar="DURATION",
        ),
    ] = "0s"
    full_batch: Annotated[
        int | None,
        _option(
            "Batch that starts without waiting: the server's largest.",
            "--full-batch",
            panel=_WHAT,
            metavar="N",
        ),
    ] = None


@dataclass(frozen=True)
class RunOptions:
    """How an endpoint is measured."""

    batches: Annotated[
        str,
        _option(
            "Requests together; end with the largest you will allow.",
            "--batches",
            "-b",
            panel=_RUN,
            metavar="SIZES",
        ),
    ] = "1,8,32"
    rounds: Annotated[
        int,
        _option("Measured requests of each sender.", "--rounds", panel=_RUN, metavar="N"),
    ] = 12
    warm_up: Annotated[
        int, _option("Requests of each before.", "--warm-up", panel=_RUN, metavar="N")
    ] = 2
    prompt_tokens: Annotated[
        int, _option("Tokens in.", "--prompt-tokens", panel=_RUN, metavar="N")
    ] = 512
    output_tokens: Annotated[
        int, _option("Tokens out.", "--output-tokens", panel=_RUN, metavar="N")
    ] = 128
    protocol: Annotated[
        str,
        _option("completions, chat or triton.", "--protocol", panel=_RUN, metavar="NAME"),
    ] = "completions"
    served_model: Annotated[
        str | None,
        _option("Name the server knows.", "--served-model", panel=_RUN, metavar="NAME"),
    ] = None
    token_variable: Annotated[
        str,
        _option(
            "Environment variable with the bearer token.",
            "--token-variable",
            panel=_RUN,
            metavar="NAME",
        ),
    ] = "OPENAI_API_KEY"


@dataclass(frozen=True)
class ProfileOptions:
    """Flags of ``sojourn profile``."""

    source: SourceOptions
    identity: IdentityOptions
    run: RunOptions
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where the ServingProfile goes. Default: standard output.",
        ),
    ] = None
    figure: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the fit: .svg, .png or .pdf."),
    ] = None


def profile(options: ProfileOptions) -> None:
    """Measure service time (B = 1, 8, 32), fit T_fixed and t_req, write a ServingProfile.

    The report goes to standard error, the manifest to standard output or -o. Exit code 1: the
    points lie on no line that is near enough to size with.
    """
    from sojourn.cli.profiling import fitting  # noqa: PLC0415
    from sojourn.errors import UnitError  # noqa: PLC0415
    from sojourn.units import parse_duration_s  # noqa: PLC0415

    try:
        max_wait_s = parse_duration_s(options.identity.max_wait)
    except UnitError as exc:
        raise UsageError(f"--max-wait: {exc}") from exc
    identity = _identity(options.identity)
    console = screen.console(error=True)
    points = _points(options, console)
    gathering = fitting.Gathering(max_wait_s, options.identity.full_batch)
    found = fitting.fitted(points, identity, gathering)
    _report(found, console)
    _draw(found, options.figure, console)
    _write(found, options.output)
    if not found.usable:
        raise typer.Exit(exits.VERDICT)


def _identity(given: IdentityOptions) -> Identity:
    import re  # noqa: PLC0415

    from sojourn.catalogue import Catalogue  # noqa: PLC0415
    from sojourn.cli.profiling.fitting import Identity  # noqa: PLC0415
    from sojourn.errors import ModelUnknown  # noqa: PLC0415

    catalogue = Catalogue()
    gpu = catalogue.gpu(given.gpu).name
    try:
        experts = catalogue.model(given.model).experts > 0
    except ModelUnknown:
        experts = False
    bare = given.model.rsplit("/", 1)[-1]
    cards = f"-x{given.tensor_parallel}" if given.tensor_parallel > 1 else ""
    usual = re.sub(r"[^a-z0-9]+", "-", f"{bare}-{gpu}{cards}".lower()).strip("-")
    return Identity(
        name=given.name or usual,
        model=given.model,
        gpu=gpu,
        tensor_parallel=given.tensor_parallel,
        engine=given.engine,
        experts=experts,
        dynamic=given.dynamic or given.engine == "triton",
    )


def _points(options: ProfileOptions, console: Console) -> list[Point]:
    source = options.source
    chosen = [bool(source.files), bool(source.endpoint), bool(source.prometheus)]
    if sum(chosen) != 1:
        raise UsageError(
            "give one source: --endpoint URL, benchmark files, or --prometheus URL "
            f"({sum(chosen)} given)"
        )
    if source.files:
        from sojourn.cli.profiling import files  # noqa: PLC0415

        return files.read(source.files)
    if source.endpoint:
        from sojourn.cli.profiling import session  # noqa: PLC0415

        return session.measured(source.endpoint, options.identity.model, options.run, console)
    return _history(options)


def _history(options: ProfileOptions) -> list[Point]:
    import asyncio  # noqa: PLC0415
    import time  # noqa: PLC0415

    from sojourn.cli.profiling import history  # noqa: PLC0415
    from sojourn.observe.settings import PrometheusSettings  # noqa: PLC0415

    source, now_s = options.source, time.time()
    try:
        settings = PrometheusSettings(url=source.prometheus or "")
    except ValueError as exc:
        raise UsageError(f"--prometheus: {exc}") from exc
    past = history.Past(
        settings,
        options.identity.engine,
        source.namespace,
        source.pods,
        now_s - 3600 * source.hours,
        now_s,
    )
    return asyncio.run(history.read(past))


def _report(found: Fitted, console: Console) -> None:
    from sojourn.cli import text  # noqa: PLC0415
    from sojourn.cli.profiling import fitting  # noqa: PLC0415
    from sojourn.cli.table import Column, Table, print_table  # noqa: PLC0415
    from sojourn.model import service_time  # noqa: PLC0415

    columns = (
        Column("batch", "B", lambda value: f"{value:.4g}"),
        Column("latency_s", "request", text.seconds),
        Column("first_s", "first token", text.seconds),
        Column("measured_s", found.of, text.seconds),
        Column("line_s", "line", text.seconds),
        Column("error", "error", lambda value: f"{100 * value:+.1f} %"),
        Column("samples", "requests", text.count, rank=1),
    )
    law = found.judged.law
    rows = []
    for point, seconds in zip(found.points, found.seconds, strict=True):
        line_s = float(service_time.service_s(law, point.batch))
        rows.append(
            {
                "batch": point.batch,
                "latency_s": point.latency_s,
                "first_s": point.first_token_s,
                "measured_s": seconds,
                "line_s": line_s,
                "error": line_s / seconds - 1,
                "samples": point.samples or None,
            }
        )
    print_table(Table(columns, tuple(rows)), console)
    console.print()
    fixed, slope = fitting.exact_duration(law.fixed_s), fitting.exact_duration(law.per_request_s)
    console.print(
        f"{found.of}: {fixed} + {slope} B, at most {found.judged.max_relative_error:.1%} off "
        f"(accepted: {found.judged.tolerance:.0%}), R2 {found.judged.r_squared:.4f}",
        markup=False,
    )
    if found.per_prompt_token_s is not None:
        prompt = fitting.exact_duration(found.per_prompt_token_s)
        console.print(f"a prompt token: {prompt}", markup=False)
    for line in fitting.verdicts(found):
        console.print(line, markup=False)


def _draw(found: Fitted, path: Path | None, console: Console) -> None:
    import numpy as np  # noqa: PLC0415

    from sojourn.plot import curves  # noqa: PLC0415

    picture = curves.FitPicture(
        name=f"{found.identity.model} on {found.identity.gpu}",
        batches=np.asarray(found.batches),
        seconds=np.asarray(found.seconds),
        law=found.judged.law,
        tolerance=found.judged.tolerance,
        label=f"time of {found.of}",
    )
    if path is None:
        if console.is_terminal:
            from sojourn.plot import terminal  # noqa: PLC0415

            shown = terminal.Screen(console.width, screen.coloured(console))
            console.file.write(terminal.fit(picture, shown) + "\n")
        return
    from sojourn.plot import fit, style  # noqa: PLC0415

    if path.suffix.lower() not in style.SUFFIXES:
        raise UsageError(f"--figure {path}: expected {', '.join(style.SUFFIXES)}")
    style.save(fit.draw(picture), path)
    console.print(f"wrote {path}", markup=False)


def _write(found: Fitted, path: Path | None) -> None:
    import yaml  # noqa: PLC0415

    from sojourn import api  # noqa: PLC0415
    from sojourn.cli.profiling import fitting  # noqa: PLC0415

    body = fitting.manifest(found)
    api.read_profile(body)  # what is written must be readable
    content = yaml.safe_dump(body, sort_keys=False)
    if path is None:
        screen.echo(content)
        return
    try:
        path.write_text(content)
    except OSError as exc:
        raise UsageError(f"-o {path} cannot be written: {exc.strerror}") from exc
    screen.console(error=True).print(f"wrote {path}", markup=False)
