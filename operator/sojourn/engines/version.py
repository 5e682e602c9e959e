"""Versions of engines, as image tags carry them."""

from __future__ import annotations

import re

Version = tuple[int, int, int]

_TAG_VERSION = re.compile(r"^v?(\d{1,3})\.(\d{1,3})(?:\.(\d{1,3}))?(?!\d)")


def parse_version(text: str) -> Version | None:
    """The first three numbers of a version; None when the text does not begin with one.

    >>> parse_version("v0.10.2-cu126")
    (0, 10, 2)
    >>> parse_version("latest") is None
    True
    """
    match = _TAG_VERSION.match(text)
    if match is None:
        return None
    return int(match.group(1)), int(match.group(2)), int(match.group(3) or 0)


def version_of_image(image: str) -> Version | None:
    """Engine version an image's tag states; None when it has none.

    None means "not known": names are then tried newest first, a version is never assumed.

    >>> version_of_image("registry:5000/vllm/vllm-openai:v0.10.2")
    (0, 10, 2)
    >>> version_of_image("registry:5000/vllm/vllm-openai") is None
    True
    """
    path = image.partition("@")[0]
    last = path.rpartition("/")[2]
    name, colon, tag = last.partition(":")
    return parse_version(tag) if colon and name else None
