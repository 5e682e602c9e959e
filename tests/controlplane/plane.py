"""``ControlPlane``: everything started, ready, and gone without a trace when it is left."""

import shlex
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.controlplane import binaries
from tests.controlplane.access import Access, environment
from tests.controlplane.components import ALL, CLIENTS, Component, Layout, Settings, checked
from tests.controlplane.errors import ComponentFailed, ControlPlaneError
from tests.controlplane.gobuild import Say
from tests.controlplane.process import ManagedProcess, ProcessInfo
from tests.controlplane.prometheus import PrometheusSettings
from tests.controlplane.reaper import Reaper

START_TIMEOUT_S = 90.0  # about 6 s on an idle machine; a loaded one needs more
READY_POLL_S = 0.05
DEFAULT_PROMETHEUS = PrometheusSettings()


class ControlPlane(Access):
    """A Kubernetes control plane and a Prometheus on free ports of the loopback.

        with ControlPlane(cold_start_s=2.0) as plane:
            plane.add_nodes(2)
            plane.kubectl("apply", "-f", "-", input=manifest, check=True)

    Everything is ready when the ``with`` body begins. Processes and files are gone when it ends,
    on Ctrl-C, on SIGTERM and even when this process is killed with SIGKILL.

    Args:
        components: names of what to start; ``components.API_ONLY`` is enough for tests of CRDs.
        cold_start_s: seconds from the start of a simulated container to its readiness; the pod
            annotation ``sojourn.dev/cold-start`` ("45s") overrides it.
        apiserver_flags: further flags of kube-apiserver, e.g. ``--feature-gates=...``.
        keep_dir: keep data, logs and certificates there; None for a temporary folder.
        prometheus: scrape interval and discovery.
        say: receives the progress of missing programs being made, and the start's timing.

    Raises:
        ValueError: an unknown component, or one without the component it needs.
    """

    def __init__(
        self,
        *,
        components: Iterable[str] = ALL,
        cold_start_s: float = 1.0,
        apiserver_flags: Sequence[str] = (),
        keep_dir: Path | None = None,
        prometheus: PrometheusSettings = DEFAULT_PROMETHEUS,
        say: Say = binaries.say_to_stderr,
    ) -> None:
        self._components = checked(components)
        self._settings = Settings(cold_start_s, tuple(apiserver_flags), prometheus)
        self._keep_dir = keep_dir
        self._say = say
        self._processes: dict[Component, ManagedProcess] = {}
        self._reaper: Reaper | None = None
        self.ready_after_s: dict[str, float] = {}  # seconds from a component's start to readiness

    def with_controller_manager_flags(self, *flags: str) -> Self:
        """Give kube-controller-manager further flags; to be called before the plane is up."""
        self._settings = replace(self._settings, controller_manager_flags=flags)
        return self

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.down()

    def up(self) -> None:
        """Start everything and wait until it is ready; cleans up after itself when that fails.

        Raises:
            BinaryUnavailable: a program is missing and cannot be made.
            ComponentFailed: a program ended, or was not ready within 90 s.
        """
        has_api = Component.APISERVER in self._components
        programs = binaries.ensure(
            [*self._components, *(["kubectl"] if has_api else [])], self._say
        )
        began_s = time.monotonic()
        self._reaper = Reaper()
        try:
            self._layout = Layout(self._make_folder(self._reaper), self._settings)
            self._kubectl_program = programs["kubectl"].path if has_api else None
            self._runs_controllers = Component.CONTROLLER_MANAGER in self._components
            for component in self._components:
                self._prepare(component, programs[component].path, self._reaper)
            self._start([one for one in self._components if one not in CLIENTS])
            self._start([one for one in self._components if one in CLIENTS])
        except BaseException:
            self.down()
            raise
        parts = ", ".join(f"{name} {after_s:.1f}" for name, after_s in self.ready_after_s.items())
        self._say(f"control plane ready in {time.monotonic() - began_s:.1f} s ({parts})")

    def down(self) -> None:
        """Stop everything and remove its files; a second call changes nothing."""
        if self._reaper is None:
            return
        for process in reversed(self._processes.values()):
            # Data that is kept must be readable afterwards; data that is not needs no farewell.
            if self._keep_dir is None:
                process.kill()
            else:
                process.stop()
        self._processes.clear()
        self._reaper.finish()
        self._reaper = None

    def detach(self) -> str:
        """Leave everything running beyond this process; returns the shell command that ends it.

        The plane can no longer be stopped or hurt through this object.
        """
        if self._reaper is None:
            raise ControlPlaneError("the control plane is not running")
        groups = " ".join(f"-{info.pid}" for info in self.processes)
        self._reaper.release()
        for process in self._processes.values():
            process.detach()
        self._processes.clear()
        self._reaper.finish()
        self._reaper = None
        removal = f"rm -rf {shlex.quote(str(self.folder))}"
        ending = f"kill -s KILL -- {groups}"  # this form alone is portable among shells
        return ending if self._keep_dir is not None else f"{ending}; {removal}"

    def start(self, component: str) -> None:
        """Start a stopped component on its old port and data; returns when it is ready.

        Raises:
            ComponentFailed: it runs already, ended at once, or was not ready within 90 s.
        """
        self._process(component)
        self._start([Component(component)])

    def stop(self, component: str) -> None:
        """Stop a component with SIGTERM (SIGKILL after 20 s); returns when it is gone."""
        self._process(component).stop()

    def kill(self, component: str) -> None:
        """End a component with SIGKILL; returns when it is gone."""
        self._process(component).kill()

    def pause(self, component: str) -> None:
        """Freeze a component (SIGSTOP): its connections stay open, nothing is answered."""
        self._process(component).pause()

    def resume(self, component: str) -> None:
        """Undo ``pause``; returns when the component is ready again."""
        self._process(component).resume()
        self._await_ready(Component(component))

    @property
    def processes(self) -> list[ProcessInfo]:
        """Name, process id and resident memory of every running component."""
        infos = (process.info for process in self._processes.values())
        return [info for info in infos if info is not None]

    def _process(self, component: str) -> ManagedProcess:
        try:
            return self._processes[Component(component)]
        except KeyError:
            raise ControlPlaneError(f"this control plane runs no {component}") from None

    def _make_folder(self, reaper: Reaper) -> Path:
        if self._keep_dir is not None:
            self._keep_dir.mkdir(parents=True, exist_ok=True)
            return self._keep_dir.resolve()
        folder = Path(tempfile.mkdtemp(prefix="sojourn-plane-"))
        reaper.remove(folder)
        return folder

    def _prepare(self, component: Component, program: Path, reaper: Reaper) -> None:
        layout = self.layout
        command = [str(program), *layout.command(component)]
        log = layout.logs / f"{component}.log"
        process = ManagedProcess(str(component), command, log, environment(layout.folder), reaper)
        self._processes[component] = process

    def _start(self, chosen: Sequence[Component]) -> None:
        began_s = time.monotonic()
        for component in chosen:
            self._processes[component].start()
        for component in chosen:
            self._await_ready(component)
            self.ready_after_s[component] = time.monotonic() - began_s

    def _await_ready(self, component: Component) -> None:
        deadline_s = time.monotonic() + START_TIMEOUT_S
        process = self._processes[component]
        while not self.layout.is_ready(component):
            process.fail_if_ended()
            if time.monotonic() > deadline_s:
                what = f"was not ready within {START_TIMEOUT_S:g} s"
                raise ComponentFailed(component, what, process.log_tail())
            time.sleep(READY_POLL_S)
