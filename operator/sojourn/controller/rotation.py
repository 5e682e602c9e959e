"""The life of the webhook's certificate: the next step, from what is stored and the time.

    serving old, trusting old
    -> serving old, trusting old and new     a new pair is staged ``renew_before`` its end
    -> serving new, trusting old and new     after ``overlap``: every API server trusts the new CA
    -> serving new, trusting new             after ``overlap``: every process serves the new leaf

At every moment each leaf that may be served is trusted, so no request fails for a certificate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sojourn.controller import certificates
from sojourn.controller.certificates import LEAF_LIFE


@dataclass(frozen=True)
class Terms:
    """For whom certificates are made and how long each state lasts.

    Attributes:
        names: DNS names the leaf must carry.
        life: of a leaf and its CA.
        renew_before: a new pair is made when the leaf has less than this to live.
        overlap: how long both CAs are trusted before the new leaf is served, and after.
    """

    names: tuple[str, ...]
    life: timedelta = LEAF_LIFE
    renew_before: timedelta = timedelta(days=90)
    overlap: timedelta = timedelta(minutes=10)


@dataclass(frozen=True)
class Stored:
    """What the Secret holds, PEM.

    Attributes:
        bundle_pem: every CA to be trusted.
        certificate_pem, key_pem: what is served.
        next_certificate_pem, next_key_pem: what will be served; empty when nothing is staged.
    """

    bundle_pem: bytes
    certificate_pem: bytes
    key_pem: bytes
    next_certificate_pem: bytes = b""
    next_key_pem: bytes = b""


def advance(stored: Stored | None, terms: Terms, now: datetime) -> Stored:
    """The next state; the same object when nothing is to be done."""
    if stored is None or not serviceable(stored, terms, now):
        return _fresh(stored, terms, now)
    if stored.next_certificate_pem:
        return _handed_over(stored, terms, now)
    leaf = certificates.readable(stored.certificate_pem, stored.key_pem)
    assert leaf is not None  # serviceable above
    if leaf.not_valid_after_utc - now < terms.renew_before:
        pair = certificates.issue(terms.names, now, terms.life)
        bundle = stored.bundle_pem + pair.ca_pem
        return replace(
            stored,
            bundle_pem=bundle,
            next_certificate_pem=pair.certificate_pem,
            next_key_pem=pair.key_pem,
        )
    held = certificates.authorities(stored.bundle_pem)
    needed = tuple(one for one in held if certificates.signed(leaf, one))
    if len(held) > len(needed) and now - certificates.issued_at(leaf) >= 2 * terms.overlap:
        return replace(stored, bundle_pem=certificates.pem_of(needed))
    return stored


def _handed_over(stored: Stored, terms: Terms, now: datetime) -> Stored:
    """The next certificate in service once everybody had time to trust it; dropped if unusable."""
    coming = certificates.readable(stored.next_certificate_pem, stored.next_key_pem)
    if coming is None or not certificates.trusted(stored.next_certificate_pem, stored.bundle_pem):
        return replace(stored, next_certificate_pem=b"", next_key_pem=b"")
    if now - certificates.issued_at(coming) < terms.overlap:
        return stored
    return Stored(stored.bundle_pem, stored.next_certificate_pem, stored.next_key_pem)


def serviceable(stored: Stored, terms: Terms, now: datetime) -> bool:
    """Whether what is served can be: readable, for our names, not ended, trusted by the bundle."""
    leaf = certificates.readable(stored.certificate_pem, stored.key_pem)
    return (
        leaf is not None
        and certificates.covers(leaf, terms.names)
        and leaf.not_valid_after_utc > now
        and certificates.trusted(stored.certificate_pem, stored.bundle_pem)
    )


def _fresh(stored: Stored | None, terms: Terms, now: datetime) -> Stored:
    """A new pair, served at once; CAs that other processes may still need stay trusted."""
    pair = certificates.issue(terms.names, now, terms.life)
    old = certificates.authorities(stored.bundle_pem) if stored is not None else ()
    kept = certificates.pem_of(one for one in old if one.not_valid_after_utc > now)
    return Stored(kept + pair.ca_pem, pair.certificate_pem, pair.key_pem)
