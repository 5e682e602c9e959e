"""The one door to the Prometheus HTTP API.

The client library is synchronous and not thread-safe, so each worker thread has its own. A query
ends for the caller after ``timeout_s`` whatever the server does; the thread ends by its own
time-out and deadline. While abandoned threads are still busy no new query is sent through them,
so a server that hangs costs at most ``threads`` threads and never a queue.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import math
import threading
from typing import Any, NamedTuple, Self

from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from requests import exceptions as http
from urllib3.exceptions import ReadTimeoutError
from urllib3.util.retry import Retry

from sojourn.errors import MetricsUnavailable
from sojourn.observe.quiet_collector import collector_paused
from sojourn.observe.session import Answer, GuardedSession, credentials
from sojourn.observe.settings import PrometheusSettings


class Series(NamedTuple):
    """One series of an answer: its labels, its value (may be NaN or infinite), Unix seconds."""

    labels: dict[str, str]
    value: float
    at_s: float


class QueryRefused(MetricsUnavailable):
    """Prometheus understood the request and refuses the query: asking again does not help."""


class PrometheusSource:
    """Prometheus, asked from a bounded number of threads.

    ``close`` when done; a source belongs to one event loop.
    """

    def __init__(self, settings: PrometheusSettings) -> None:
        self.settings = settings
        self._pool = concurrent.futures.ThreadPoolExecutor(
            settings.threads, thread_name_prefix="prometheus"
        )
        self._gate = asyncio.Semaphore(settings.threads)
        self._abandoned: set[concurrent.futures.Future[list[Series]]] = set()
        self._local = threading.local()
        self.queries_sent = 0
        self.clock_skew_s = 0.0

    async def query(self, expression: str, at_s: float) -> list[Series]:
        """Answer to an instant query evaluated at ``at_s`` (Unix seconds).

        Values that are no numbers come back as NaN, infinite ones as they are: they are the
        caller's to judge, because a NaN is known not to be a number while no series is not known.

        Raises:
            MetricsUnavailable: no complete answer in time; the text says why, without credentials.
            QueryRefused: the query itself is at fault.
        """
        async with self._gate:
            self._abandoned = {f for f in self._abandoned if not f.done()}
            if len(self._abandoned) >= self.settings.threads:
                raise MetricsUnavailable(f"{self.settings.host} still owes answers to old queries")
            self.queries_sent += 1
            future = self._pool.submit(self._ask, expression, at_s)
            try:
                return await asyncio.wait_for(
                    asyncio.wrap_future(future), self.settings.timeout_s + 0.5
                )
            except TimeoutError:
                raise MetricsUnavailable(self._no_answer()) from None
            finally:
                # Also after a cancellation: a running thread cannot be stopped, only counted.
                if not future.done() and not future.cancel():
                    self._abandoned.add(future)

    def close(self) -> None:
        """Let the threads go; does not wait for a server that hangs."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _ask(self, expression: str, at_s: float) -> list[Series]:
        """Runs in a worker thread."""
        client, session = self._client()
        session.begin(self.settings.timeout_s)
        # The server gives up first, so that a slow query ends there too.
        server_timeout_s = max(0.1, 0.8 * self.settings.timeout_s)
        parameters = {
            **dict(self.settings.parameters),
            "time": f"{at_s:.3f}",
            "timeout": f"{round(server_timeout_s * 1000)}ms",
        }
        try:
            result = client.custom_query(expression, params=parameters)
        except Exception as error:
            raise self._unavailable(error, session.answer) from error
        if session.answer.partial:
            raise MetricsUnavailable(f"the answer is partial: {session.answer.partial}")
        self.clock_skew_s = session.answer.clock_skew_s
        with collector_paused():
            return _series(result)

    def _client(self) -> tuple[PrometheusConnect, GuardedSession]:
        if not hasattr(self._local, "client"):
            settings = self.settings
            session = GuardedSession(settings)
            self._local.session = session
            self._local.client = PrometheusConnect(
                url=settings.url.rstrip("/"),
                headers=dict(settings.headers),
                retry=_OneMoreTry(
                    total=1,
                    status=0,
                    backoff_factor=0,
                    respect_retry_after_header=False,
                    allowed_methods=None,
                    raise_on_status=False,
                ),
                auth=credentials(settings),
                session=session,
                timeout=(settings.connect_timeout_s, settings.timeout_s),
            )
        return self._local.client, self._local.session

    def _no_answer(self) -> str:
        return f"{self.settings.host} did not answer within {self.settings.timeout_s:g} s"

    def _unavailable(self, error: Exception, answer: Answer) -> MetricsUnavailable:
        host = self.settings.host
        match error:
            case PrometheusApiClientException():
                return _refused(host, answer)
            case http.SSLError():
                return MetricsUnavailable(f"{host}: its certificate is not trusted, or ours is not")
            case http.JSONDecodeError():
                return MetricsUnavailable(
                    f"{host} answered with something that is not JSON: a login page, or not the "
                    "address of a Prometheus API"
                )
            case http.Timeout():
                return MetricsUnavailable(self._no_answer())
            case http.ConnectionError():
                return MetricsUnavailable(f"{host} cannot be reached: {_network_reason(error)}")
            case OSError() if not isinstance(error, http.RequestException):
                return MetricsUnavailable(f"credentials cannot be read: {error.strerror}")
            case KeyError() | TypeError():
                return MetricsUnavailable(f"{host} reports an error: {answer.error or 'no data'}")
        return MetricsUnavailable(f"{host}: {type(error).__name__}")


class _OneMoreTry(Retry):
    """One more try after a broken connection, none after a silence: that would double the wait."""

    def increment(self, *call: Any, **details: Any) -> Self:
        error = details.get("error")
        if isinstance(error, ReadTimeoutError):
            raise error
        return super().increment(*call, **details)


def _refused(host: str, answer: Answer) -> MetricsUnavailable:
    text = f"{host} answered {answer.status}"
    if answer.error:
        text = f"{text}: {answer.error}"
    if answer.status in (400, 422):
        return QueryRefused(text)
    if answer.status in (401, 403):
        return MetricsUnavailable(f"{host} refuses our credentials or tenant ({answer.status})")
    return MetricsUnavailable(text)


def _network_reason(error: Exception) -> str:
    """Plain words for the usual network failures; the library's text holds the whole URL."""
    text = str(error)
    for sign, words in (
        ("NameResolution", "its name does not resolve"),
        ("refused", "connection refused"),
        ("timed out", "no answer in time"),
        ("RemoteDisconnected", "it closed the connection without an answer"),
        ("reset", "it reset the connection"),
        ("unreachable", "no route to it"),
    ):
        if sign in text:
            return words
    return type(error).__name__


def _series(result: Any) -> list[Series]:
    """Series of a vector.

    Raises:
        QueryRefused: a scalar or a matrix: the query is not one of ours.
    """
    try:
        return [
            Series(entry["metric"], _number(entry["value"][1]), float(entry["value"][0]))
            for entry in result
        ]
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise QueryRefused("the answer is not an instant vector") from error


def _number(text: object) -> float:
    try:
        return float(text) if isinstance(text, str) else math.nan
    except ValueError:
        return math.nan
