"""The admission server: AdmissionReview in, AdmissionReview out, over TLS.

Not Kopf's: its answers carry a message and a code only, it answers 404 until it has discovered our
kinds, it opens its port anew when the certificate changes, and its dispatch of one 28 kB object
costs 3 ms where reading and judging it cost 1. The certificate is exchanged in the live context:
connections stay, the next handshake presents the new one.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import ssl
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from aiohttp import web

from sojourn import api
from sojourn.act.farewell import closed
from sojourn.controller import guard_review, review, trust
from sojourn.controller.guard_review import Guard
from sojourn.controller.own_metrics import OwnMetrics
from sojourn.controller.review import Enforcement, Review, Reviewer
from sojourn.controller.trust import Served
from sojourn.facts.finding import Finding

log = logging.getLogger(__name__)

MOST_BYTES = 8 * 2**20
"""The API server's own limit of a request is 3 MiB; a review carries two objects."""

JUDGED = ("CREATE", "UPDATE")
SHOWN_CAUSES = 16
WORKERS = 2
"""Threads that solve: they take turns at one interpreter, so more would only keep the event loop
from its turn. Two, so that one long search does not hold up all others."""
SWITCH_S = 1e-4
"""How long the event loop waits for a thread that computes, a tick or a solution, to give up the
interpreter. One request takes it some eight times: at Python's 5 ms, and at 0.5 ms still, 200
requests/s are not answered while a tick lasts; at 0.1 ms each takes 3 ms
(``python -m benchmarks.admission_in_tick``)."""
KEPT_S = 120.0
"""Longer than the API server keeps an idle connection (90 s): whoever closes it first decides
whether a request may be lost on its way, and only the client can know."""


class AdmissionServer:
    """Answers the API server's questions from memory.

    Args:
        guard: judges Deployments that ask for it.
        folder: where certificate and key are put for ``ssl`` to load.
    """

    def __init__(self, reviewer: Reviewer, guard: Guard, metrics: OwnMetrics, folder: Path) -> None:
        self._reviewer = reviewer
        self._guard = guard
        self._metrics = metrics
        self._folder = folder
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._served: Served | None = None
        self._runner: web.AppRunner | None = None
        self._workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="admission")
        self._draining = False

    @property
    def listening(self) -> bool:
        """Whether admission requests are answered."""
        return self._runner is not None

    def use(self, served: Served) -> None:
        """Present this certificate from the next handshake on."""
        if served.certificate_pem != getattr(self._served, "certificate_pem", None):
            self._context.load_cert_chain(*trust.write_files(served, self._folder))
            self._served = served

    async def start(self, address: str | None, port: int) -> None:
        """Listen; ``use`` must have been called.

        Raises:
            OSError: the port is taken.
        """
        app = web.Application(client_max_size=MOST_BYTES)
        app.add_routes(
            [
                web.post("/validate", self._enforced),
                web.post("/validate-profile", self._enforced),
                web.post("/guard", self._enforced),
                web.post("/warn", self._warned),
            ]
        )
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            # An API server that gave up is not answered: after an overload nothing old is left.
            handler_cancellation=True,
            keepalive_timeout=KEPT_S,
        )
        await self._runner.setup()
        site = web.TCPSite(
            self._runner, address, port, ssl_context=self._context, backlog=1024, reuse_port=False
        )
        await site.start()

    def drain(self) -> None:
        """Go on answering, but let every connection end after its next answer."""
        self._draining = True

    async def stop(self) -> None:
        """Stop listening; requests under way are answered first, then every connection ends."""
        if self._runner is not None:
            held = self._runner.server.connections if self._runner.server is not None else []
            open_ones = [one.transport for one in held if one.transport is not None]
            sockets = [one.get_extra_info("socket") for one in open_ones if not one.is_closing()]
            await self._runner.cleanup()
            await closed(sockets)
            self._runner = None
        self._workers.shutdown(wait=False, cancel_futures=True)

    async def _enforced(self, request: web.Request) -> web.Response:
        return await self._answered(request, Enforcement.ENFORCE)

    async def _warned(self, request: web.Request) -> web.Response:
        return await self._answered(request, Enforcement.WARN)

    async def _answered(self, request: web.Request, enforcement: Enforcement) -> web.Response:
        began_s = time.perf_counter()
        try:
            asked = json.loads(await request.read())["request"]
            uid, kind = str(asked["uid"]), str(asked["kind"]["kind"])
        except (ValueError, KeyError, TypeError):
            text = "expected an AdmissionReview of admission.k8s.io/v1\n"
            raise web.HTTPBadRequest(text=text) from None
        try:
            found = await self._reviewed(kind, asked)
            if enforcement is Enforcement.WARN:
                found = review.softened(found)
            self._count(found, asked)
            answered = response_of(uid, found, asked)
        except Exception:
            answered = self._failed(uid, asked)
        self._metrics.admission_seconds.observe(time.perf_counter() - began_s)
        response = web.json_response(answered)
        if self._draining:
            response.force_close()
        return response

    async def _reviewed(self, kind: str, asked: Mapping[str, Any]) -> Review:
        body, old = asked.get("object"), asked.get("oldObject")
        if asked.get("operation") not in JUDGED or asked.get("subResource") or body is None:
            return Review()
        old = old if asked["operation"] == "UPDATE" else None
        if kind == api.SERVING_PROFILE.kind:
            return review.review_profile(body, old)
        if kind == "Deployment":
            return await self._in_thread(self._guard.review, body, old)
        case = self._reviewer.prepare(body, old)
        if case is None:
            return Review()
        known = self._reviewer.judged_at_once(case)
        if known is not None:
            return known
        return await self._in_thread(self._reviewer.judge, case)

    async def _in_thread(self, function: Any, *arguments: Any) -> Review:
        """What must be solved takes up to some 100 ms: others are answered meanwhile."""
        loop = asyncio.get_running_loop()
        answer: Review = await loop.run_in_executor(self._workers, function, *arguments)
        return answer

    def _count(self, found: Review, asked: Mapping[str, Any]) -> None:
        """Counters and one line for each denial and bypass; a dry run is told from the real one."""
        dry = bool(asked.get("dryRun"))
        self._metrics.admissions.labels(found.answer).inc()
        for finding in found.findings:
            self._metrics.admission_reasons.labels(finding.reason, finding.verdict).inc()
        if found.denial is None and not found.bypassed:
            return
        reasons = ", ".join(dict.fromkeys(str(f.reason) for f in found.rejected))
        what = f"bypassed ({found.bypassed})" if found.bypassed else "denied"
        name = asked.get("name") or "(generated name)"
        log.log(
            logging.WARNING if found.bypassed else logging.INFO,
            "admission %s: %s %s %s/%s by %s%s: %s",
            what,
            asked.get("operation"),
            asked["kind"]["kind"],
            asked.get("namespace"),
            name,
            (asked.get("userInfo") or {}).get("username"),
            " (dry run)" if dry else "",
            reasons,
        )

    def _failed(self, uid: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Fail closed for what we judge; the guard of other people's objects fails open."""
        mark = secrets.token_hex(4)
        log.exception("admission failed, error %s", mark)
        self._metrics.admissions.labels("failed").inc()
        text = f"InternalError: admission failed; see the operator's log for error {mark}"
        if (asked.get("kind") or {}).get("kind") == guard_review.KIND:
            return _envelope({"uid": uid, "allowed": True, "warnings": [text]})
        status = {"status": "Failure", "message": text, "reason": "InternalError", "code": 500}
        return _envelope({"uid": uid, "allowed": False, "status": status})


def response_of(uid: str, found: Review, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The AdmissionReview that answers, its causes readable by machines."""
    response: dict[str, Any] = {"uid": uid, "allowed": found.denial is None}
    if found.warnings:
        response["warnings"] = list(found.warnings)
    if found.denial is not None:
        kind = asked.get("kind") or {}
        response["status"] = {
            "status": "Failure",
            "message": found.denial,
            "reason": "Forbidden",
            "code": 403,
            "details": {
                "name": str(asked.get("name") or ""),
                "group": str(kind.get("group") or ""),
                "kind": str(kind.get("kind") or ""),
                "causes": [_cause(finding) for finding in found.rejected[:SHOWN_CAUSES]],
            },
        }
    if found.bypassed:
        # The API server writes these into its audit log.
        reasons = ",".join(dict.fromkeys(str(f.reason) for f in found.rejected))
        response["auditAnnotations"] = {"bypassed": reasons, "bypass-reason": found.bypassed}
    return _envelope(response)


def _cause(finding: Finding) -> dict[str, str]:
    return {
        "reason": str(finding.reason),
        "field": finding.field,
        "message": finding.message,
    }


def _envelope(response: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
