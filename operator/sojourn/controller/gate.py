"""The gate: admission server, its certificate and its self-probe as one part of the process."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sojourn import api
from sojourn.act import webhook
from sojourn.act.kube import Kube
from sojourn.controller.guard_review import Guard
from sojourn.controller.own_metrics import OwnMetrics
from sojourn.controller.review import Reviewer
from sojourn.controller.server import AdmissionServer
from sojourn.controller.settings import Webhook
from sojourn.controller.trust import Trust
from sojourn.errors import ClusterUnavailable
from sojourn.facts.reasons import Reason

log = logging.getLogger(__name__)

LeadsOf = Callable[[], bool]
"""Whether this process holds the lease."""

PROBE_LABEL = "serving.sojourn.dev/probe"
KNOWN_BAD: dict[str, Any] = {
    "apiVersion": f"{api.GROUP}/{api.VERSION}",
    "kind": api.INFERENCE_SERVICE.kind,
    "metadata": {"name": "sojourn-probe", "labels": {PROBE_LABEL: "true"}},
    "spec": {
        "model": {"name": "meta-llama/Llama-3.1-8B-Instruct"},
        "gpu": {"type": "A100-80GB"},
        "engine": {
            "name": "custom",
            "batching": "Dynamic",
            "maxBatchSize": {"min": 1, "max": 1},
            "maxBatchWait": "0s",
        },
        "slo": {"latency": "10s"},
        "traffic": {"peakRate": 100},
        "serviceTime": {"fixed": "1s", "perRequest": "0s"},
        "scaleTargetRef": {"name": "sojourn-probe"},
        "scaling": {"minReplicas": 1, "maxReplicas": 1},
    },
}
"""100 requests/s on one replica that serves 1/s: if this is admitted, nothing is checked."""


class Gate:
    """Answers admission, and sees to it that the API server asks us.

    Args:
        namespace: the operator's own; the probe is tried there, where nothing else is judged.
    """

    def __init__(
        self,
        kube: Kube,
        namespace: str,
        options: Webhook,
        metrics: OwnMetrics,
        reviewer: Reviewer,
    ) -> None:
        self._kube = kube
        self._namespace = namespace
        self._options = options
        self._metrics = metrics
        self._trust = Trust(kube, namespace, options, metrics)
        self._judges = reviewer, Guard(reviewer.registry, reviewer.gpus)
        self._server: AdmissionServer | None = None

    @property
    def open(self) -> bool:
        """Whether admission is answered, or is not to be."""
        return not self._options.enabled or (self._server is not None and self._server.listening)

    async def start(self, folder: Path) -> None:
        """Begin to answer.

        Args:
            folder: where certificate and key are put for the server.

        Raises:
            ClusterUnavailable: there is no certificate and none can be stored.
            OSError: the port is taken.
        """
        if not self._options.enabled:
            return
        self._server = AdmissionServer(*self._judges, self._metrics, folder)
        self._server.use(await self._trust.tend(leads=False))
        await self._server.start(self._options.address, self._options.port)

    async def keep(self, leads: LeadsOf) -> None:
        """Look after certificate and trust for ever; trouble is logged and tried again."""
        probe_at_s = time.monotonic()
        while True:
            await asyncio.sleep(self._options.check)
            if self._server is None:
                continue
            try:
                self._server.use(await self._trust.tend(leads=leads()))
                if leads() and time.monotonic() >= probe_at_s:
                    probe_at_s = time.monotonic() + self._options.probe
                    await self.probe()
            except (ClusterUnavailable, OSError) as exc:
                log.warning("webhook certificate not checked: %s", exc)

    async def probe(self) -> bool:
        """Try to create a known-bad object, as a dry run; True when our webhook refuses it."""
        plural = api.INFERENCE_SERVICE.plural
        path = f"/apis/{api.GROUP}/{api.VERSION}/namespaces/{self._namespace}/{plural}"
        try:
            refusal = await webhook.asks(self._kube, path, KNOWN_BAD)
        except ClusterUnavailable as exc:
            log.warning("admission cannot be probed: %s", exc.why)
            self._metrics.probe_refused.set(0)
            return False
        refused = refusal is not None and Reason.UNSTABLE in refusal
        if not refused:
            log.error(
                "a known-bad object was not refused: is the webhook configuration %s installed?",
                self._options.configuration,
            )
        self._metrics.probe_refused.set(refused)
        return refused

    async def drain(self) -> None:
        """Go on answering until the cluster has stopped sending requests here."""
        if self._server is not None:
            self._server.drain()
            await asyncio.sleep(self._options.drain)

    async def close(self) -> None:
        """Stop answering."""
        if self._server is not None:
            await self._server.stop()
