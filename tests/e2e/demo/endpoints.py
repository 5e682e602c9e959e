"""Which pods get requests: EndpointSlices as a node's proxy reads them.

A pod gets them while it is ready. Where none is, those that still serve while they terminate do.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

Service = tuple[str, str]  # namespace and name
NAME_LABEL = "kubernetes.io/service-name"


class Endpoints:
    """The pods behind each Service; fed with EndpointSlices, as lists and watches bring them."""

    def __init__(self) -> None:
        self._slices: dict[Service, dict[str, list[Mapping[str, Any]]]] = defaultdict(dict)

    def keep_only(self, bodies: list[Mapping[str, Any]]) -> None:
        """Take in a complete list."""
        self._slices.clear()
        for body in bodies:
            self.apply("ADDED", body)

    def apply(self, event: str, body: Mapping[str, Any]) -> Service | None:
        """Take in one event; the Service it is about, None for a slice of no Service."""
        metadata = body["metadata"]
        name = (metadata.get("labels") or {}).get(NAME_LABEL)
        if name is None:
            return None
        service = metadata["namespace"], name
        if event == "DELETED":
            self._slices[service].pop(metadata["name"], None)
        else:
            self._slices[service][metadata["name"]] = body.get("endpoints") or []
        return service

    def pods(self, service: Service) -> list[str] | None:
        """Names of the pods that get requests; None for an application without a Service."""
        if service not in self._slices:
            return None
        endpoints = [one for part in self._slices[service].values() for one in part]
        ready = [one for one in endpoints if one["conditions"].get("ready")]
        chosen = ready or [
            one
            for one in endpoints
            if one["conditions"].get("serving") and one["conditions"].get("terminating")
        ]
        return [one["targetRef"]["name"] for one in chosen if "targetRef" in one]
