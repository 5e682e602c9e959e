"""Read objects of a plane's API without a process a look: kubectl costs a tenth of a second."""

import json
import ssl
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

GROUP = "/apis/serving.sojourn.dev/v1alpha1"
TIMEOUT_S = 10.0
WATCH_S = 3600


class Client:
    """Reads as the administrator of a kubeconfig that ``tests.controlplane`` wrote."""

    def __init__(self, kubeconfig: Path) -> None:
        document = json.loads(kubeconfig.read_text())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        self.server: str = cluster["server"]
        self.tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self.tls.load_cert_chain(user["client-certificate"], user["client-key"])

    def get(self, path: str, **query: str) -> dict[str, Any]:
        """The JSON object at an API path.

        Raises:
            OSError: no answer, or an HTTP error.
        """
        url = f"{self.server}{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=TIMEOUT_S, context=self.tls) as response:
            answer: dict[str, Any] = json.load(response)
            return answer

    def items(self, path: str, **query: str) -> list[dict[str, Any]]:
        """The items of a list."""
        found: list[dict[str, Any]] = self.get(path, **query).get("items") or []
        return found

    def service(self, namespace: str, name: str) -> dict[str, Any]:
        """An InferenceService."""
        return self.get(f"{GROUP}/namespaces/{namespace}/inferenceservices/{name}")

    def services(self, namespace: str) -> Iterator[dict[str, Any]]:
        """The InferenceServices of a namespace."""
        yield from self.items(f"{GROUP}/namespaces/{namespace}/inferenceservices")

    def events(self, namespace: str) -> list[dict[str, Any]]:
        """Events (events.k8s.io/v1) of a namespace, oldest first."""
        found = self.items(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
        return sorted(found, key=lambda event: str(event.get("eventTime") or ""))
