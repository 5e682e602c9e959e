"""Token lengths of a service: declared, else those of its profile, else a stated default."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sojourn.facts.declaration import DeclaredTokens, Traffic
from sojourn.facts.profile import Profile
from sojourn.facts.service import Source
from sojourn.facts.service_time import TokenLengths

DEFAULT_PROMPT_TOKENS = 512.0
DEFAULT_OUTPUT_TOKENS = 256.0
"""Sizes of a chat turn; used only when neither traffic nor profile says, and shown as Default."""

NORMAL_P99 = 2.3263478740408408


@dataclass(frozen=True)
class Lengths:
    """Prompt and output tokens of a service's requests, and where they came from."""

    prompt_tokens: float
    output: TokenLengths
    source: Source


def lengths_of(traffic: Traffic, profile: Profile | None) -> Lengths:
    """Declared lengths first, then the profile's; the output law is lognormal through its P99.

    Without a P99 the output is taken as geometric, the law of "stop with equal chance at each
    token": its P99 is 4.6 means, which errs on the safe side for chat.
    """
    prompt = traffic.prompt.mean if traffic.prompt else None
    output = traffic.output
    source = Source.DECLARED
    if prompt is None and profile is not None and profile.prompt_tokens:
        prompt, source = profile.prompt_tokens, Source.PROFILE
    if output is None and profile is not None and profile.output_tokens:
        output, source = DeclaredTokens(profile.output_tokens), Source.PROFILE
    if output is None:
        output, source = DeclaredTokens(DEFAULT_OUTPUT_TOKENS), Source.DEFAULT
    return Lengths(DEFAULT_PROMPT_TOKENS if prompt is None else prompt, output_law(output), source)


def output_law(tokens: DeclaredTokens) -> TokenLengths:
    """Law of the output length with that mean, and that P99 if one is given."""
    if tokens.p99 is None:
        return TokenLengths(tokens.mean, max(0.0, 1 - 1 / tokens.mean), "geometric")
    ratio = tokens.p99 / tokens.mean
    if ratio <= 1.0 + 1e-9:
        return TokenLengths(tokens.mean)
    # ln(p99 / mean) = z s - s^2 / 2; the smaller root, and the largest tail a lognormal can have.
    log_ratio = min(math.log(ratio), NORMAL_P99**2 / 2)
    sigma = NORMAL_P99 - math.sqrt(max(0.0, NORMAL_P99**2 - 2 * log_ratio))
    return TokenLengths(tokens.mean, math.expm1(sigma**2), "lognormal")
