"""What a cluster holds of the book's GPT-3 service, and how commands are run on it."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

from sojourn.cli import exits
from sojourn.cli.main import app

ROOT = Path(__file__).parents[3]
GPT3 = ROOT / "deploy" / "examples" / "gpt3.yaml"
SERVICE_PATH = "/apis/serving.sojourn.dev/v1alpha1/namespaces/prod/inferenceservices/gpt3"
TARGET_PATH = "/apis/apps/v1/namespaces/prod/deployments/gpt3"


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str


def sojourn(*words: str, columns: int = 100) -> Ran:
    """Run a command in this process, as the entry point would."""
    out, err = io.StringIO(), io.StringIO()
    code = 0

    def main() -> None:
        app(args=list(words), prog_name="sojourn")

    environment = {"COLUMNS": str(columns)}
    with redirect_stdout(out), redirect_stderr(err), mock.patch.dict("os.environ", environment):
        try:
            code = exits.guarded(main, debug=False)
        except SystemExit as exc:
            code = int(exc.code or 0)
    return Ran(code, out.getvalue(), err.getvalue())


def service(status: dict[str, Any] | None = None, **scaling: Any) -> dict[str, Any]:
    """The GPT-3 example as the API server returns it."""
    body: dict[str, Any] = yaml.safe_load(GPT3.read_text())
    body["metadata"] |= {"namespace": "prod", "uid": "u1", "generation": 3}
    body["spec"]["scaling"] |= {"maxReplicas": 8, **scaling}
    if status is not None:
        body["status"] = status
    return body


def status(rate: str = "100", **more: Any) -> dict[str, Any]:
    """A status the operator wrote: one replica at 100 requests/s."""
    good = ("Ready", "MetricsAvailable", "AbleToScale", "MemoryFits", "Stable")
    return {
        "rate": {
            "state": "Known",
            "value": rate,
            "source": "Prometheus",
            "at": "2026-01-01T00:00:00Z",
        },
        "replicas": {"current": 1, "ready": 1, "desired": 1},
        "maxBatch": {"current": 8, "desired": 8},
        "lastDecision": {
            "at": "2026-01-01T00:00:00Z",
            "row": "Steady",
            "from": {"replicas": 1, "maxBatch": 8},
            "to": {"replicas": 1, "maxBatch": 8},
            "message": "utilisation 0.68",
        },
        "conditions": [
            {"type": name, "status": "True", "reason": "AsDeclared", "message": "fine"}
            for name in good
        ],
        **more,
    }


def deployment(replicas: int = 1, *arguments: str) -> dict[str, Any]:
    """The target, its engine told of max batch by the variable."""
    words = arguments or ("--max-batch=$(SOJOURN_MAX_BATCH)",)
    container = {
        "name": "engine",
        "image": "engine:1",
        "args": list(words),
        "env": [{"name": "SOJOURN_MAX_BATCH", "value": "8"}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "gpt3", "namespace": "prod", "uid": "d1", "generation": 1},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [container]}}},
        "status": {
            "observedGeneration": 1,
            "replicas": replicas,
            "readyReplicas": replicas,
            "updatedReplicas": replicas,
        },
    }
