"""Kopf's admission server with one addition: a denial says what kind of refusal it is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any

import kopf


class AdmissionServer(kopf.WebhookServer):
    """Adds ``reason`` to denials: kubectl prints it, "(Forbidden)", and clients branch on it.

    Kopf sets message and code alone, and the API server derives no reason from a code.
    """

    async def __call__(self, fn: Any) -> AsyncIterator[Any]:
        """Serve until stopped; yields the client configuration, as Kopf's server does."""

        async def reasoned(*positional: Any, **named: Any) -> Any:
            return with_reason(await fn(*positional, **named))

        async for configuration in super().__call__(reasoned):
            yield configuration


def with_reason(review: dict[str, Any]) -> dict[str, Any]:
    """An admission review's answer whose status, if it has one, carries a reason."""
    status = review.get("response", {}).get("status")
    if status and status.get("code") == HTTPStatus.FORBIDDEN:
        status.setdefault("reason", "Forbidden")
    return review
