"""``python -m tests.e2e.demo``: DEMO=short for the short act, KEEP=1 to leave it running."""

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from types import FrameType

import numpy as np
from rich.console import Console

from sojourn.plot import staircase
from tests.controlplane import binaries
from tests.controlplane.errors import ControlPlaneError
from tests.controlplane.plane import ControlPlane
from tests.controlplane.prometheus import PrometheusSettings
from tests.e2e.demo import scenario, summary, table, theatre
from tests.e2e.demo.client import Client
from tests.e2e.demo.fleet import Fleet
from tests.e2e.demo.installation import EXAMPLES, REPOSITORY, Installation
from tests.e2e.demo.stage import Actor, Stage

NAMESPACE = "demo"
OUTPUT = Path(os.environ.get("DEMO_OUTPUT") or REPOSITORY / "demo-output")
SAMPLE_S = 1.0
SEED = 20


def main() -> int:
    """Run the demo; the exit code."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    console = table.console()
    try:
        with contextlib.ExitStack() as stack:
            _perform(stack, console)
    except KeyboardInterrupt:
        print("demo: stopped, everything is cleaned up")
        return 130
    except (ControlPlaneError, AssertionError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _perform(stack: contextlib.ExitStack, console: Console) -> None:
    began_s = time.monotonic()
    print("demo: starting etcd, kube-apiserver, controllers, kwok and Prometheus")
    plane = ControlPlane(
        cold_start_s=theatre.COLD_START_S, prometheus=PrometheusSettings(), say=print
    )
    stack.enter_context(plane)
    plane.add_nodes(theatre.GPU_NODES)
    client = Client(plane.kubeconfig)
    fleet = stack.enter_context(Fleet(client))
    theatre.connect(plane, fleet)
    print("$ kubectl apply -k deploy/base     # here: the operator as a process, not as a pod")
    installation = stack.enter_context(Installation(plane))
    plane.kubectl("create", "namespace", NAMESPACE, check=True)
    stage = _stage(plane, fleet, client)
    print(f"demo: live after {time.monotonic() - began_s:.0f} s")
    _refusals(plane)
    _play(stage, console)
    _end(stage, client, installation)
    print(f"demo: {time.monotonic() - began_s:.0f} s in all")
    if os.environ.get("KEEP"):
        _keep(plane, stage)


def _stage(plane: ControlPlane, fleet: Fleet, client: Client) -> Stage:
    print("$ kubectl apply -k tests/e2e/demo/manifests     # deploy/examples at the demo's pace")
    print(theatre.apply(plane, NAMESPACE, theatre.manifests(plane)), end="")
    parts = scenario.parts(short=os.environ.get("DEMO") == "short")
    theatre.await_serving(fleet, NAMESPACE, *(part.name for part in parts))
    stage = Stage(fleet, client, NAMESPACE, np.random.default_rng(SEED))
    stage.cast(parts)
    return stage


def _refusals(plane: ControlPlane) -> None:
    """What kubectl prints when admission says no."""
    for name in ("oom", "unstable"):
        print(f"\n$ kubectl apply -f deploy/examples/{name}.yaml")
        path = str(EXAMPLES / f"{name}.yaml")
        answer = plane.kubectl("apply", "-n", NAMESPACE, "-f", path)
        print((answer.stdout + answer.stderr).rstrip())
    print()


def _play(stage: Stage, console: Console) -> None:
    stage.start()
    with table.Board(stage, console) as board:
        while stage.elapsed_s < stage.duration_s:
            stage.sample()
            board.show()
            # The pace of the record itself: there is no condition to wait for.
            time.sleep(max(0.0, SAMPLE_S - stage.elapsed_s % SAMPLE_S))


def _end(stage: Stage, client: Client, installation: Installation) -> None:
    events = summary.decisions(client, stage.namespace)
    print("\n".join(summary.lines(stage.actors, events)))
    figure = staircase.draw([trace(actor) for actor in stage.actors.values()])
    paths = staircase.save(figure, OUTPUT, "demo")
    samples = {name: [asdict(s) for s in actor.samples] for name, actor in stage.actors.items()}
    (OUTPUT / "samples.json").write_text(json.dumps(samples))
    log = OUTPUT / "operator.log"
    shutil.copy(installation.log, log)
    print(f"\nfigure: {', '.join(_shown(path) for path in paths)}; log: {_shown(log)}")


def trace(actor: Actor) -> staircase.Trace:
    """An actor's record as the figure wants it."""
    samples = actor.samples
    return staircase.Trace(
        name=actor.part.name,
        slo_s=actor.forecast.slo_s,
        times_s=[s.at_s for s in samples],
        offered_per_s=[s.offered_per_s for s in samples],
        observed_per_s=[s.observed_per_s for s in samples],
        ready=[s.ready for s in samples],
        desired=[s.desired for s in samples],
        max_batch=[s.max_batch for s in samples],
        measured_s=[s.p99_s for s in samples],
        predicted_s=[s.predicted_s for s in samples],
    )


def _keep(plane: ControlPlane, stage: Stage) -> None:
    """Leave everything running, with steady load, until Ctrl-C."""
    program = binaries.ensure(["kubectl"], print)["kubectl"].path
    kubectl = f"{program} --kubeconfig {plane.kubeconfig} -n {NAMESPACE}"
    print(
        f"\nKEEP: it runs on until Ctrl-C. Prometheus: {plane.prometheus_url}\n"
        f"  {kubectl} get infsvc -w\n"
        f"  {kubectl} describe infsvc gpt3\n"
        f"  {kubectl} get pods,events\n"
        f"  {kubectl} apply -f deploy/examples/unstable.yaml"
    )
    stage.cast(scenario.steady())
    stage.start()
    signal.pause()


def _shown(path: Path) -> str:
    return str(path.relative_to(REPOSITORY)) if path.is_relative_to(REPOSITORY) else str(path)


if __name__ == "__main__":
    sys.exit(main())
