"""``sojourn operator``: the long-running process of the cluster."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

from sojourn.controller import app as controller
from sojourn.controller.settings import load


def run(settings: Path, kubeconfig: Path | None, log_level: str) -> None:
    """Run the operator until it is told to stop."""
    _set_up_logging(log_level)
    asyncio.run(controller.main(load(settings), kubeconfig))


def _set_up_logging(level: str) -> None:
    logging.basicConfig(
        level=level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    # A line for each watch event and request would bury the operator's own words; denials are
    # logged by the operator itself, with their reasons.
    logging.getLogger("kopf.objects").addFilter(_is_trouble)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
    # Its warning of a failed connection holds the whole query, in every tick of an outage.
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)


def _is_trouble(record: logging.LogRecord) -> bool:
    denial = record.getMessage().startswith("Webhook ")
    return record.levelno >= logging.WARNING and not denial
