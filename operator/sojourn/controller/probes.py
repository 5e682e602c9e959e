"""Health, readiness and our own metrics over HTTP."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from prometheus_client import generate_latest

from sojourn.controller.own_metrics import OwnMetrics


async def serve(
    health_port: int, metrics_port: int, ready: Callable[[], str | None], metrics: OwnMetrics
) -> list[web.AppRunner]:
    """Serve ``/healthz`` and ``/readyz`` on one port, ``/metrics`` on another.

    Args:
        ready: None when ready, else what is missing.

    Raises:
        OSError: a port is taken.
    """

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        missing = ready()
        return web.Response(text=f"{missing or 'ok'}\n", status=503 if missing else 200)

    async def own(_: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(metrics.registry), headers={"Content-Type": "text/plain"}
        )

    health, figures = web.Application(), web.Application()
    health.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz)])
    figures.add_routes([web.get("/metrics", own)])
    return [await _listen(health, health_port), await _listen(figures, metrics_port)]


async def _listen(app: web.Application, port: int) -> web.AppRunner:
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, port=port).start()
    return runner
