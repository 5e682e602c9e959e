"""The operator as one process: connect, sync, then watch, tick and answer until told to stop.

Any part that ends ends the process: a restart is a known state, half an operator is not.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import sys
import tempfile
from pathlib import Path

import kopf

from sojourn.act.execute import Executor
from sojourn.act.kube import Kube
from sojourn.act.lease import Lease, LeaseSettings
from sojourn.catalogue import Catalogue
from sojourn.controller import handlers, probes, sync
from sojourn.controller.gate import Gate
from sojourn.controller.handlers import Hub
from sojourn.controller.loop import Loop
from sojourn.controller.own_metrics import OwnMetrics
from sojourn.controller.registry import Registry
from sojourn.controller.review import Reviewer
from sojourn.controller.server import SWITCH_S
from sojourn.controller.settings import Settings, own_name, own_namespace
from sojourn.controller.tick import Corridor
from sojourn.errors import ClusterUnavailable
from sojourn.facts.declaration import Declaration
from sojourn.facts.situation import TargetState
from sojourn.observe.cluster import ClusterState
from sojourn.observe.gather import Gatherer
from sojourn.observe.prometheus import PrometheusSource
from sojourn.observe.quiet_collector import collect_seldom
from sojourn.observe.scale_reader import ScaleReader

log = logging.getLogger(__name__)


HEED_S = 1.0
SYNC_RETRY_S = 2.0
WATCH_PATIENCE_S = 60.0
"""How far a watch may be behind a list before the process is restarted."""

UNWATCHED_S = 30.0
"""How often a kind is listed of which no watch has brought anything."""


class Operator:
    """Every part of one process, wired."""

    def __init__(self, settings: Settings, kube: Kube) -> None:
        self.settings = settings
        self.kube = kube
        self.namespace = own_namespace()
        self.metrics = OwnMetrics()
        names = Catalogue()
        self.registry = Registry(names)
        self.cluster = ClusterState(every_namespace=not settings.scope.namespaces)
        self.prometheus = PrometheusSource(settings.prometheus.source())
        self.metrics.queries.set_function(lambda: float(self.prometheus.queries_sent))
        self.lease = Lease(kube, self._lease_settings())
        self.kopf_ready = asyncio.Event()
        self.stopping = asyncio.Event()
        self.synced = False
        self._behind = False
        self.loop = Loop(
            self._corridor(names),
            self.lease,
            self.metrics,
            self._sees,
            (settings.tick, settings.lease.retry),
        )
        self.reviewer = Reviewer(
            registry=self.registry,
            gpus=names.gpus(),
            owners_of=self._owners_of,
            rate_of=self.registry.rate_of,
            pods_of=self.cluster.target_pods,
        )
        self.gate = Gate(kube, self.namespace, settings.webhook, self.metrics, self.reviewer)
        self.draining = False

    def missing(self) -> str | None:
        """What is not ready yet; None when this process may get traffic."""
        if self.draining:
            return "told to stop"
        if not self.gate.open:
            return "admission is not answered yet"
        if not self.synced:
            return "the first lists have not arrived"
        if not self.kopf_ready.is_set():
            return "the watches have not started"
        return None

    async def run(self, folder: Path) -> None:
        """Run until told to stop or until a part ends.

        Args:
            folder: where the webhook's certificate and key are put for its server.

        Raises:
            ClusterUnavailable: rights are missing without which the operator cannot work.
        """
        await self.gate.start(folder)
        runners = await probes.serve(
            self.settings.health_port, self.settings.metrics_port, self.missing, self.metrics
        )
        parts = {
            asyncio.create_task(coroutine, name=name)
            for name, coroutine in (
                ("kopf", self._kopf()),
                ("lease", self.lease_when_synced()),
                ("loop", self.loop.run()),
                ("resync", self._resync()),
                ("watches", self._watches_follow()),
                ("unwatched", self._list_unwatched()),
                ("gate", self.gate.keep(lambda: self.lease.held)),
                ("stop", self._stop_asked()),
            )
        }
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                log.info("%s ended: stopping", task.get_name())
                task.result()
        finally:
            # First the lease: nothing is written from now on, and another process may begin.
            await self.lease.release()
            self.stopping.set()
            await _cancelled(parts)
            await self.gate.close()
            for runner in runners:
                await runner.cleanup()
            self.prometheus.close()
            await self.kube.close()

    async def lease_when_synced(self) -> None:
        """Seek the lease once the first picture is complete: a blind process must not lead."""
        while not self.synced:
            await asyncio.sleep(0.1)
        await self.loop.tend_lease()

    async def _kopf(self) -> None:
        registry = kopf.OperatorRegistry()
        hub = Hub(self.registry, self.cluster, self.loop.changed)
        handlers.register(registry, hub)
        handlers.register_login(registry, lambda: self.kube.connection)
        namespaces = self.settings.scope.namespaces
        await kopf.operator(
            registry=registry,
            settings=handlers.settings_of(),
            standalone=True,
            clusterwide=not namespaces,
            namespaces=namespaces,
            ready_flag=self.kopf_ready,
            stop_flag=self.stopping,
        )

    def _sees(self) -> bool:
        """Whether the lists are at least as new as the API server's last silence.

        A watch that lost its connection tries again after up to half a minute. Until then memory
        holds what was, and to decide on that could take away what others have added.
        """
        return not self._behind and not self.lease.silence.is_set()

    async def _resync(self) -> None:
        while True:
            if self.lease.silence.is_set():
                self.lease.silence.clear()
                self._behind = True
            complete = await sync.sync(
                self.kube, self.registry, self.cluster, self.settings.scope.namespaces
            )
            if complete and not self.synced:
                # What was loaded and listed stays: collections that walk it would stop admission.
                gc.collect()
                gc.freeze()
            self.synced = self.synced or complete
            if complete and self._behind:
                self._behind = False
                self.loop.changed()
            if complete:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.lease.silence.wait(), self.settings.resync)
            else:
                await asyncio.sleep(SYNC_RETRY_S)

    async def _watches_follow(self) -> None:
        """End the process when a list has shown what the watch has not brought since.

        Kopf only logs a watcher that gives up and never starts it again.
        """
        while True:
            late = self.registry.unwatched()
            await asyncio.sleep(WATCH_PATIENCE_S)
            if still := late & self.registry.unwatched():
                name = "/".join(min(still))
                raise ClusterUnavailable(
                    "watch of InferenceServices",
                    f"{len(still)} objects, {name} among them, were not brought in "
                    f"{WATCH_PATIENCE_S:g} s: restarting",
                )

    async def _list_unwatched(self) -> None:
        while True:
            await asyncio.sleep(UNWATCHED_S)
            if self.synced:
                await sync.sync_unwatched(self.kube, self.cluster, self.settings.scope.namespaces)

    async def _stop_asked(self) -> None:
        asked = asyncio.Event()
        loop = asyncio.get_running_loop()
        while not asked.is_set():
            # Kopf sets handlers of its own on its way up, which would end it without a drain.
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, asked.set)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asked.wait(), HEED_S)
        # The cluster takes some time to send admission requests elsewhere.
        self.draining = True
        await self.gate.drain()

    def _corridor(self, names: Catalogue) -> Corridor:
        executor = Executor(self.kube, may_write=lambda: self.lease.held, host=own_name())
        access = self.kube.connection
        scales = ScaleReader.connect(
            access.server,
            access.ca_file,
            (access.certificate_file, access.key_file),
            lambda: self.kube.connection.token,
        )
        scrape = self.settings.prometheus.scrape()
        gatherer = Gatherer(self.cluster, self.prometheus, scrape, scales)
        return Corridor(
            registry=self.registry,
            gatherer=gatherer,
            executor=executor,
            policy=self.settings.policy(),
            gpus=names.gpus(),
            metrics=self.metrics,
            identity=f"{self.namespace}/{self.settings.lease.name}",
        )

    def _lease_settings(self) -> LeaseSettings:
        lease = self.settings.lease
        return LeaseSettings(self.namespace, lease.name, own_name(), lease.duration, lease.retry)

    def _owners_of(self, declaration: Declaration) -> tuple[str, ...]:
        sharing = self.registry.sharing_target(declaration)
        target = self.cluster.target_state(declaration, sharing)
        return target.other_owners if isinstance(target, TargetState) else sharing


async def _cancelled(tasks: set[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def main(settings: Settings, kubeconfig: Path | None) -> None:
    """Run the operator.

    Args:
        kubeconfig: None inside a cluster.

    Raises:
        ClusterUnavailable: the cluster cannot be reached, or rights are missing.
    """
    sys.setswitchinterval(SWITCH_S)
    collect_seldom()
    kube = await Kube.connect(str(kubeconfig) if kubeconfig else None)
    with tempfile.TemporaryDirectory(prefix="sojourn-") as folder:
        await Operator(settings, kube).run(Path(folder))
