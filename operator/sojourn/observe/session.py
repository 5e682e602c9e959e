"""A requests session that keeps what the client library throws away.

The library returns only ``data.result``: warnings, the HTTP status and a total time limit are
ours to keep. The session also refuses redirects and ignores ``.netrc`` and proxy variables, so
that a token only ever goes to the configured address.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import requests
from requests.auth import AuthBase, HTTPBasicAuth

from sojourn.observe.quiet_collector import collector_paused
from sojourn.observe.settings import PrometheusSettings

# Queries of this length or less go into the URL, where every proxy takes them.
_LONGEST_URL_QUERY = 3000
_LARGEST_ANSWER_BYTES = 256 * 2**20
_CHUNK_BYTES = 2**18
_LONGEST_ERROR = 300


@dataclass
class Answer:
    """What was seen of the last answer.

    Attributes:
        status: HTTP status; 0 before an answer.
        error: the server's own error text, shortened.
        partial: why the data may be incomplete; empty when it is complete.
        clock_skew_s: the server's clock minus ours.
    """

    status: int = 0
    error: str = ""
    partial: str = ""
    clock_skew_s: float = 0.0


class _QuietResponse(requests.Response):
    """A response whose JSON is parsed without the collector."""

    def json(self, **options: Any) -> Any:
        with collector_paused():
            return super().json(**options)


class GuardedSession(requests.Session):
    """A session for one thread; call ``begin`` before each query."""

    def __init__(self, settings: PrometheusSettings) -> None:
        super().__init__()
        self.trust_env = False
        self.verify = str(settings.ca_file) if settings.ca_file else settings.verify
        if settings.client_cert_file and settings.client_key_file:
            self.cert = (str(settings.client_cert_file), str(settings.client_key_file))
        self.answer = Answer()
        self._deadline_s = 0.0

    def begin(self, timeout_s: float) -> None:
        """Start a query that has to end within ``timeout_s``."""
        self.answer = Answer()
        self._deadline_s = time.monotonic() + timeout_s

    def request(self, method: str | bytes, url: str | bytes, **options: Any) -> requests.Response:  # type: ignore[override]
        """Send it; long queries as a form, whose length no proxy limits."""
        options["allow_redirects"] = False
        parameters = options.get("params") or {}
        if len(str(parameters.get("query", ""))) > _LONGEST_URL_QUERY:
            method, options["params"], options["data"] = "POST", None, parameters
        return super().request(method, url, **options)

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """Send it and read the whole answer before the deadline.

        Raises:
            requests.ReadTimeout: the answer did not end in time, however fast it drips.
        """
        options["stream"] = True
        response = super().send(request, **options)
        chunks, size = [], 0
        for chunk in response.iter_content(_CHUNK_BYTES):
            chunks.append(chunk)
            size += len(chunk)
            if time.monotonic() > self._deadline_s or size > _LARGEST_ANSWER_BYTES:
                response.close()
                raise requests.ReadTimeout("the answer is too slow or too large")
        response._content = b"".join(chunks)
        # The library asks the response for its JSON: this is where its time goes.
        response.__class__ = _QuietResponse
        self.answer = _seen(response)
        return response


class _BearerFile(AuthBase):
    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        token = self._path.read_text("utf-8").strip()
        request.headers["Authorization"] = f"Bearer {token}"
        return request


class _BasicFile(AuthBase):
    def __init__(self, username: str, path: Path) -> None:
        self._username, self._path = username, path

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        password = self._path.read_text("utf-8").strip()
        HTTPBasicAuth(self._username, password)(request)
        return request


def credentials(settings: PrometheusSettings) -> AuthBase | None:
    """How queries are authenticated; None when they are not."""
    if settings.bearer_token_file is not None:
        return _BearerFile(settings.bearer_token_file)
    if settings.username is not None and settings.password_file is not None:
        return _BasicFile(settings.username, settings.password_file)
    return None


def _seen(response: requests.Response) -> Answer:
    answer = Answer(status=response.status_code, clock_skew_s=_skew_s(response))
    body = response.content
    # A search of bytes costs a hundredth of a second parse; most answers have neither word.
    suspicious = b'"warnings"' in body or b'"isPartial"' in body or b'"error"' in body
    if not suspicious:
        return answer
    try:
        document = json.loads(body)
    except ValueError:
        return answer
    if not isinstance(document, dict):
        return answer
    answer.error = str(document.get("error") or "")[:_LONGEST_ERROR]
    warnings = document.get("warnings") or []
    if warnings:
        answer.partial = str(warnings[0])[:_LONGEST_ERROR]
    elif document.get("isPartial"):
        answer.partial = "the store reports isPartial"
    return answer


def _skew_s(response: requests.Response) -> float:
    try:
        return parsedate_to_datetime(response.headers["Date"]).timestamp() - time.time()
    except (KeyError, TypeError, ValueError):
        return 0.0
