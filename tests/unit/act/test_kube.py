"""The door to the API: what stays behind when it is closed."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import pytest
from kubernetes.aio import client

from sojourn.act.farewell import closed
from sojourn.act.kube import Kube, Request
from sojourn.controller import certificates
from sojourn.errors import ClusterUnavailable
from tests.open_sockets import connected_at


def serving(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """A server's TLS settings and the file of the CA that vouches for it."""
    made = certificates.issue(("localhost",), datetime.now(UTC))
    files = folder / "tls.crt", folder / "tls.key", folder / "ca.crt"
    for path, content in zip(files, (made.certificate_pem, made.key_pem, made.ca_pem), strict=True):
        path.write_bytes(content)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files[0], files[1])
    return context, files[2]


class Silent:
    """A TLS server in a thread: reads one request, and on leave the client's farewell."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.asked, self.leave = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.leave.set()
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        raw, _ = self._listener.accept()
        with self._context.wrap_socket(raw, server_side=True) as peer:
            peer.recv(65536)
            self.asked.set()
            self.leave.wait(10)
            peer.recv(65536)


@pytest.mark.asyncio
async def test_closing_ends_the_connection_of_a_request_that_was_given_up(tmp_path: Path) -> None:
    context, authority = serving(tmp_path)
    with Silent(context) as peer:
        configuration = client.Configuration(host=f"https://localhost:{peer.port}")
        configuration.ssl_ca_cert = str(authority)
        kube = Kube(configuration)
        calling = asyncio.create_task(kube.call(Request("GET", "/version")))
        assert await asyncio.to_thread(peer.asked.wait, 10)
        assert ours(peer.port)
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
        assert ours(peer.port)
        asyncio.get_running_loop().call_soon(peer.leave.set)
        await kube.close()
        assert not ours(peer.port)


def ours(port: int) -> list[socket.socket]:
    """Open connections of this process to a server at that port."""
    return [one for one in connected_at(port) if one.getpeername()[1] == port]


@pytest.mark.asyncio
async def test_closing_a_door_that_led_nowhere_is_no_error() -> None:
    configuration = client.Configuration(host="http://127.0.0.1:9")
    kube = Kube(configuration)
    with pytest.raises(ClusterUnavailable):
        await kube.call(Request("GET", "/version"))
    await kube.close()


@pytest.mark.asyncio
async def test_a_peer_that_never_answers_is_not_waited_for_for_ever() -> None:
    class Open:
        def fileno(self) -> int:
            return 7

    async with asyncio.timeout(30):
        await closed([Open()])
