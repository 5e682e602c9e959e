"""The door to the Kubernetes API: asynchronous requests with a time limit and one error type."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote
from weakref import WeakSet

import aiohttp
from aiohttp import AddrInfoType
from kubernetes.aio import client, config
from kubernetes.aio.client.exceptions import ApiException

from sojourn.act.farewell import closed
from sojourn.errors import ClusterUnavailable

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
STEPS = "application/json-patch+json"
JSON = "application/json"


@dataclass(frozen=True)
class Request:
    """One call of the API: method, path, and what goes with it."""

    method: str
    path: str
    body: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None
    content_type: str = JSON
    query: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Connection:
    """How the cluster is reached: files hold the secrets, or a token does."""

    server: str
    ca_file: str | None
    certificate_file: str | None
    key_file: str | None
    token: str | None = field(repr=False, default=None)


class Kube:
    """A client of one cluster; safe to share among tasks of one event loop.

    Args:
        configuration: of the kubernetes package: address and credentials.
        timeout_s: limit of every request.
        concurrency: most requests under way at once.
    """

    def __init__(
        self, configuration: client.Configuration, timeout_s: float = 10.0, concurrency: int = 16
    ) -> None:
        self._api = client.ApiClient(configuration)
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self._connector = aiohttp.TCPConnector(
            limit=self._api.rest_client.maxsize,
            ssl=self._api.rest_client.ssl_context,
            socket_factory=self._socket,
        )
        configuration.client_session_kwargs = {"connector": self._connector}
        self._timeout_s = timeout_s
        self._slots = asyncio.Semaphore(concurrency)

    @classmethod
    async def connect(cls, kubeconfig: str | None = None, timeout_s: float = 10.0) -> Kube:
        """Connect with a kubeconfig file, or as the pod's service account if none is given.

        Raises:
            ClusterUnavailable: no configuration can be read.
        """
        configuration = client.Configuration()
        try:
            if kubeconfig is not None:
                await config.load_kube_config(
                    config_file=kubeconfig, client_configuration=configuration
                )
            else:
                config.load_incluster_config(client_configuration=configuration)
        except (config.ConfigException, OSError) as exc:
            raise ClusterUnavailable("cluster configuration", str(exc)) from exc
        return cls(configuration, timeout_s)

    @property
    def connection(self) -> Connection:
        """Address and credentials, for a second client of the same cluster."""
        held = self._api.configuration
        token = str((held.api_key or {}).get("BearerToken") or "")
        return Connection(
            server=held.host,
            ca_file=held.ssl_ca_cert,
            certificate_file=held.cert_file,
            key_file=held.key_file,
            token=token.removeprefix("Bearer ").strip() or None,
        )

    async def close(self) -> None:
        """Close the connections, those of requests that were given up too."""
        await self._api.close()
        await self._connector.close()
        await closed(self._sockets)

    def _socket(self, address: AddrInfoType) -> socket.socket:
        family, kind, protocol, _, _ = address
        made = socket.socket(family, kind, protocol)
        self._sockets.add(made)
        return made

    async def call(self, request: Request) -> dict[str, Any]:
        """The answer's JSON object.

        Raises:
            ClusterUnavailable: an error status (kept in ``status``), no answer, or no JSON.
        """
        what = f"{request.method} {request.path}"
        try:
            async with self._slots:
                status, body = await asyncio.wait_for(self._send(request), self._timeout_s)
        except (ApiException, aiohttp.ClientError, OSError, TimeoutError) as exc:
            raise ClusterUnavailable(what, str(exc) or type(exc).__name__) from exc
        return _answer(what, status, body)

    async def _send(self, request: Request) -> tuple[int, bytes]:
        headers = {"Accept": JSON, "Content-Type": request.content_type}
        arguments = await self._api.param_serialize(
            method=request.method,
            resource_path=request.path,
            query_params=list(request.query),
            header_params=headers,
            body=request.body,
            auth_settings=["BearerToken"],
        )
        response = await self._api.call_api(*arguments, _request_timeout=self._timeout_s)
        return int(response.status), await response.read()


def _answer(what: str, status: int, body: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(body or b"{}")
    except ValueError as exc:
        raise ClusterUnavailable(what, f"HTTP {status} without JSON", status) from exc
    if status >= 400:
        why = parsed.get("message") if isinstance(parsed, dict) else None
        raise ClusterUnavailable(what, f"HTTP {status}: {why or 'no message'}", status)
    return parsed if isinstance(parsed, dict) else {}


PLURALS = {
    "Deployment": "deployments",
    "StatefulSet": "statefulsets",
    "ReplicaSet": "replicasets",
    "LeaderWorkerSet": "leaderworkersets",
    "InferenceService": "inferenceservices",
    "ServingProfile": "servingprofiles",
}


def object_path(api_version: str, kind: str, namespace: str, name: str) -> str:
    """Path of a namespaced object; kinds not listed follow the regular plural.

    >>> object_path("apps/v1", "Deployment", "prod", "chat")
    '/apis/apps/v1/namespaces/prod/deployments/chat'
    """
    root = f"/api/{api_version}" if "/" not in api_version else f"/apis/{api_version}"
    plural = PLURALS.get(kind) or f"{kind.lower()}s"
    return f"{root}/namespaces/{quote(namespace)}/{plural}/{quote(name)}"
