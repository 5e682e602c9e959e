"""The executor, a real API server and an engine that takes max batch while it runs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from sojourn.act.execute import Applied, Executor
from sojourn.act.kube import Kube
from sojourn.act.live_batch import LiveBatches
from sojourn.facts.declaration import BatchPolicy, ObjectRef
from sojourn.facts.plan import Plan
from sojourn.facts.reasons import Reason
from sojourn.facts.situation import EnginePod, Past
from tests.controlplane.components import LOOPBACK
from tests.controlplane.plane import ControlPlane
from tests.unit.act.fake_engines import FakeSGLang
from tests.unit.decide.builders import NOW_S, autoscaled, plan


def _plan(namespace: str, port: int) -> Plan:
    """What decide wants of one SGLang pod, at the address of the fake."""
    one = autoscaled(
        engine={"name": "sglang", "min_batch": 1, "max_batch": 32},
        scaling={"batch_policy": BatchPolicy.LIVE},
    )
    pods = (EnginePod("chat-0", LOOPBACK, "uid/0"),)
    target = {"engine_pods": pods, "max_batch": 64, "engine_version": "0.5.6"}
    done = plan(one, 60, 1, past=Past(0.0, live_batch=4), target=target)
    assert done.live_max_batch is not None
    wanted = replace(done.live_max_batch, port=port)
    ref = ObjectRef(namespace, "chat", "uid-1", 1)
    return replace(done, ref=ref, live_max_batch=wanted, write_replicas=False)


def _carried_out(plane: ControlPlane, namespace: str, engine: FakeSGLang) -> Applied:
    async def work() -> Applied:
        kube = await Kube.connect(str(plane.kubeconfig))
        try:
            live = LiveBatches(allowed=lambda _: True)
            executor = Executor(kube, lambda: True, "test", live)
            async with engine.running() as port:
                (done,) = await executor.apply([_plan(namespace, port)], lambda _: None, NOW_S)
            return done
        finally:
            await kube.close()

    return asyncio.run(work())


def _events(plane: ControlPlane, namespace: str) -> list[Any]:
    return list(plane.get("events", "-n", namespace)["items"])


def test_what_every_engine_took_is_the_live_batch_and_an_event(
    control_plane: ControlPlane, namespace: str
) -> None:
    engine = FakeSGLang()
    done = _carried_out(control_plane, namespace, engine)
    assert done.live_batch == engine.cap == done.plan.decision.after.max_batch
    assert "BatchChanged" in {event["reason"] for event in _events(control_plane, namespace)}


def test_an_engine_that_fails_is_its_services_condition_and_event(
    control_plane: ControlPlane, namespace: str
) -> None:
    done = _carried_out(control_plane, namespace, FakeSGLang(broken=True))
    assert done.live_batch is None
    (able,) = [c for c in done.plan.conditions if c.type == "AbleToScale"]
    assert (able.status, able.reason) == (False, Reason.LIVE_BATCH_FAILED)
    (event,) = _events(control_plane, namespace)
    assert (event["reason"], event["type"]) == ("LiveBatchFailed", "Warning")
    assert "HTTP 500: CUDA error" in event["message"]
