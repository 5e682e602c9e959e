"""The proxy that hurts connections, before a server that echoes."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.controlplane.components import LOOPBACK
from tests.controlplane.proxy import Proxy

PATIENCE_S = 5.0
MOMENT_S = 0.2  # nothing has come after it where nothing comes


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """A proxy before an echo, of which each connection has a thread."""
    with socket.create_server((LOOPBACK, 0)) as listener:
        threading.Thread(target=_accept, args=(listener,), daemon=True).start()
        with Proxy(listener.getsockname()[1]) as proxy:
            yield proxy
        listener.shutdown(socket.SHUT_RDWR)


def _accept(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_echo, args=(connection,), daemon=True).start()


def _echo(connection: socket.socket) -> None:
    with connection:
        try:
            while content := connection.recv(65536):
                connection.sendall(content)
        except OSError:
            return


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection((LOOPBACK, proxy.port), timeout=PATIENCE_S)


def echoed(connection: socket.socket, content: bytes) -> bytes:
    connection.sendall(content)
    received = b""
    while len(received) < len(content):
        received += connection.recv(65536)
    return received


def test_everything_passes_both_ways_to_the_last_byte(proxy: Proxy) -> None:
    content = bytes(range(256)) * 4096
    with connect(proxy) as connection:
        assert echoed(connection, content[:100]) == content[:100]
        sender = threading.Thread(target=connection.sendall, args=(content,))
        sender.start()
        received = b""
        while len(received) < len(content):
            received += connection.recv(65536)
        sender.join()
        assert received == content
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""


def test_a_cut_resets_what_is_open_and_what_is_opened(proxy: Proxy) -> None:
    with connect(proxy) as old:
        echoed(old, b"before")
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            old.recv(1)
        with connect(proxy) as fresh, pytest.raises(ConnectionResetError):
            fresh.recv(1)
    proxy.restore()
    with connect(proxy) as after:
        assert echoed(after, b"after") == b"after"


def test_what_is_held_is_silent_and_arrives_afterwards(proxy: Proxy) -> None:
    with connect(proxy) as old:
        echoed(old, b"before")
        proxy.hold()
        with connect(proxy) as fresh:
            for connection in (old, fresh):
                connection.sendall(b"held")
                connection.settimeout(MOMENT_S)
                with pytest.raises(TimeoutError):
                    connection.recv(1)
            proxy.restore()
            for connection in (old, fresh):
                connection.settimeout(PATIENCE_S)
                assert connection.recv(4) == b"held"


def test_a_delay_counts_each_way_once_whatever_the_amount(proxy: Proxy) -> None:
    proxy.slow(MOMENT_S)
    with connect(proxy) as connection:
        began_s = time.monotonic()
        echoed(connection, b"x" * 600_000)
        took_s = time.monotonic() - began_s
    # A second piece behind the first would make it 4 delays; there are ten pieces.
    assert 2 * MOMENT_S <= took_s < 4 * MOMENT_S


def test_an_answer_is_the_proxys_own_and_ends_the_connection(proxy: Proxy) -> None:
    with connect(proxy) as old:
        echoed(old, b"before")
        proxy.answer(b"no")
        with pytest.raises(ConnectionResetError):
            old.recv(1)
    with connect(proxy) as fresh:
        fresh.sendall(b"question")
        assert fresh.recv(10) == b"no"
        assert fresh.recv(10) == b""
