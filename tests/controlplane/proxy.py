"""A TCP proxy that hurts: connections through it are cut, held, slowed or answered on the spot."""

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tests.controlplane.components import LOOPBACK

PIECE_BYTES = 2**16
START_TIMEOUT_S = 10.0
LINGER_NOT = struct.pack("ii", 1, 0)  # close() then sends a reset


class Proxy:
    """Leads connections to a port of the loopback; a context manager, callable from any thread.

    Args:
        target_port: where connections lead.
    """

    def __init__(self, target_port: int) -> None:
        self.port = 0
        self._target_port = target_port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._writers: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._passes = asyncio.Event()
        self._passes.set()
        self._refuses = False
        self._delay_s = 0.0
        self._answer: bytes | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(START_TIMEOUT_S)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result(START_TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_TIMEOUT_S)
        self._loop.close()

    def cut(self) -> None:
        """Reset every connection, and every new one at once."""
        self._change(self._begin_cut)

    def hold(self) -> None:
        """Let nothing pass: connections stay open and new ones are taken, in silence."""
        self._change(self._passes.clear)

    def slow(self, delay_s: float) -> None:
        """Bring everything late, each way by so many seconds."""
        self._change(lambda: setattr(self, "_delay_s", delay_s))

    def answer(self, content: bytes) -> None:
        """Answer each connection's first words with this content and close it."""
        self._change(lambda: self._begin_answer(content))

    def restore(self) -> None:
        """Let everything pass again; what was held arrives."""
        self._change(self._begin_anew)

    def _change(self, how: Callable[[], object]) -> None:
        done = threading.Event()

        def work() -> None:
            how()
            done.set()

        self._loop.call_soon_threadsafe(work)
        assert done.wait(START_TIMEOUT_S), "the proxy's loop does not answer"

    def _begin_cut(self) -> None:
        self._refuses = True
        self._reset_all()

    def _begin_answer(self, content: bytes) -> None:
        self._answer = content
        self._reset_all()  # a connection that is kept alive would go on with the server

    def _begin_anew(self) -> None:
        self._refuses, self._answer, self._delay_s = False, None, 0.0
        self._passes.set()

    def _reset_all(self) -> None:
        for writer in list(self._writers):
            _reset(writer)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, LOOPBACK, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _shut(self) -> None:
        self._server.close()
        self._passes.set()
        self._reset_all()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            if self._refuses:
                _reset(writer)
                return
            if self._answer is not None:
                await reader.read(PIECE_BYTES)
                writer.write(self._answer)
                writer.write_eof()
                await reader.read()  # until the other side has closed: a reset would lose the end
                return
            await self._passes.wait()
            await self._lead(reader, writer)
        except OSError:
            pass  # a connection that broke, as meant
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(LOOPBACK, self._target_port)
        self._writers.add(back)
        ways = [asyncio.create_task(self._pump(*way)) for way in ((reader, back), (there, writer))]
        try:
            await asyncio.gather(*ways)
        finally:
            for way in ways:
                way.cancel()
            self._writers.discard(back)
            back.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on what comes, each piece by its own delay, so that a delay limits no throughput."""
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        writing = asyncio.create_task(self._write(pieces, writer))
        try:
            while content := await reader.read(PIECE_BYTES):
                pieces.put_nowait((self._loop.time() + self._delay_s, content))
            pieces.put_nowait((self._loop.time() + self._delay_s, b""))
            await writing
        finally:
            writing.cancel()

    async def _write(
        self, pieces: "asyncio.Queue[tuple[float, bytes]]", writer: asyncio.StreamWriter
    ) -> None:
        while True:
            due_s, content = await pieces.get()
            await asyncio.sleep(max(0.0, due_s - self._loop.time()))
            await self._passes.wait()
            if not content:
                writer.write_eof()
                return
            writer.write(content)
            await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
    writer.transport.abort()
