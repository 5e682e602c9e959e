"""A measuring session at the terminal: time estimate, progress, and Ctrl-C without loss."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import TYPE_CHECKING, Any

import aiohttp

from sojourn.cli import rates
from sojourn.cli.exits import EndpointUnavailable, UsageError
from sojourn.cli.profiling import loop
from sojourn.cli.profiling.endpoint import PROTOCOLS, Endpoint, Target
from sojourn.cli.profiling.points import Point
from sojourn.units import format_duration

if TYPE_CHECKING:
    from rich.console import Console

    from sojourn.cli.profile import RunOptions


def measured(url: str, model: str, options: RunOptions, console: Console) -> list[Point]:
    """The points of one session.

    Raises:
        EndpointUnavailable: the server gives no usable answer.
        UsageError: options out of their range, or interrupted before two batches were measured.
    """
    run = _run(options)
    target = Target(
        url=url,
        model=options.served_model or "",
        protocol=options.protocol,
        prompt_tokens=options.prompt_tokens,
        output_tokens=options.output_tokens,
        token=os.environ.get(options.token_variable) or None,
    )
    return asyncio.run(_session(target, model, run, console))


def _run(options: RunOptions) -> loop.Run:
    if options.protocol not in PROTOCOLS:
        raise UsageError(f"--protocol {options.protocol}: expected {', '.join(PROTOCOLS)}")
    batches = tuple(dict.fromkeys(rates.sizes(options.batches)))
    if len(batches) < 2:
        raise UsageError(f"--batches {options.batches}: a line needs two sizes, such as 1,8,32")
    least = min(options.rounds, options.prompt_tokens, options.output_tokens)
    if least < 1 or options.warm_up < 0:
        raise UsageError("--rounds, --prompt-tokens and --output-tokens must be 1 or more")
    return loop.Run(batches, options.rounds, options.warm_up)


async def _session(target: Target, model: str, run: loop.Run, console: Console) -> list[Point]:
    stop = asyncio.Event()
    running = asyncio.get_running_loop()
    running.add_signal_handler(signal.SIGINT, stop.set)
    try:
        target = await _named(target, model)
        async with Endpoint(target) as endpoint:
            started_s = time.perf_counter()
            await endpoint.send()  # the first request of all pays for what is cold
            await endpoint.send()
            lone_s = (time.perf_counter() - started_s) / 2
            # Larger batches take longer; twice the lone request is about right up to B = 32.
            estimate_s = 2 * lone_s * len(run.batches) * (run.rounds + run.warm_up)
            console.print(
                f"{target.address}: B = {', '.join(map(str, run.batches))}, {run.requests} "
                f"requests, about {format_duration(round(estimate_s, 1))}; Ctrl-C stops early "
                "and keeps what is measured",
                markup=False,
            )
            return await _with_progress(endpoint, run, stop, console)
    finally:
        running.remove_signal_handler(signal.SIGINT)


async def _with_progress(
    endpoint: Endpoint, run: loop.Run, stop: asyncio.Event, console: Console
) -> list[Point]:
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        tasks: dict[int, Any] = {
            batch: progress.add_task(f"B = {batch}", total=batch * (run.rounds + run.warm_up))
            for batch in run.batches
        }
        return await loop.measure(
            endpoint.send,
            run,
            stop,
            lambda batch, ended: progress.update(tasks[batch], completed=ended),
        )


async def _named(target: Target, model: str) -> Target:
    """The target with the name its server knows the model by: its only one, else ours."""
    from dataclasses import replace  # noqa: PLC0415

    if target.model or target.protocol == "triton":
        return replace(target, model=target.model or model)
    names = await _listed_models(target)
    return replace(target, model=names[0] if len(names) == 1 else model)


async def _listed_models(target: Target) -> list[str]:
    """Names of the models a server says it has; none when it does not say.

    Raises:
        EndpointUnavailable: it does not answer.
    """
    address = f"{target.url.rstrip('/').removesuffix('/v1')}/v1/models"
    headers = {"Authorization": f"Bearer {target.token}"} if target.token else {}
    try:
        timeout = aiohttp.ClientTimeout(total=10)
        async with (
            aiohttp.ClientSession(headers=headers, timeout=timeout) as session,
            session.get(address) as response,
        ):
            listed = await response.json(content_type=None) if response.status < 400 else {}
    except (aiohttp.ClientError, TimeoutError, ValueError) as exc:
        raise EndpointUnavailable(f"{address} cannot be asked: {exc or 'no answer'}") from exc
    models = (listed or {}).get("data") or ()
    return [str(one.get("id")) for one in models if isinstance(one, dict)]
