"""The metrics pages of simulated pods, and what may be wrong with them."""

import re
import time
from enum import StrEnum

from aiohttp import web

from sojourn.simulate.http import MetricsServer

_VALUE = re.compile(r"^([^#\n].*) \S+$", re.MULTILINE)


class Spoilt(StrEnum):
    """How the pages of a namespace are spoilt."""

    EMPTY = "empty"  # a page without a series, as of an engine that still loads
    NOT_A_NUMBER = "not a number"
    STALE = "stale"  # samples of one past moment, with its timestamp, as from a cache


class Pages(MetricsServer):
    """Pages that tests can spoil, by namespace."""

    def __init__(self) -> None:
        super().__init__()
        self._spoilt: dict[str, Spoilt] = {}
        self._kept: dict[str, str] = {}

    def spoil(self, namespace: str, how: Spoilt | None) -> None:
        """Spoil the pages of a namespace from now on; None makes them whole again."""
        self._kept.clear()
        self._spoilt.pop(namespace, None)
        if how is not None:
            self._spoilt[namespace] = how

    async def _metrics(self, request: web.Request) -> web.Response:
        whole = await super()._metrics(request)
        text = whole.text or ""
        match self._spoilt.get(request.match_info["namespace"]):
            case Spoilt.EMPTY:
                text = ""
            case Spoilt.NOT_A_NUMBER:
                text = _VALUE.sub(r"\1 NaN", text)
            case Spoilt.STALE:
                stamped = _VALUE.sub(rf"\g<0> {time.time_ns() // 10**6}", text)
                text = self._kept.setdefault(request.path, stamped)
        return web.Response(text=text, headers={"Content-Type": whole.headers["Content-Type"]})
