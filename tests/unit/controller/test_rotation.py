"""The certificate's life: every leaf that may be served is trusted at every moment."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from sojourn.controller import certificates, rotation
from sojourn.controller.rotation import Stored, Terms

NAMES = certificates.service_names("sojourn-webhook", "sojourn-system")
TERMS = Terms(
    NAMES,
    life=timedelta(hours=10),
    renew_before=timedelta(hours=3),
    overlap=timedelta(minutes=10),
)
START = datetime(2026, 1, 1, tzinfo=UTC)


def after(hours: float = 0.0, minutes: float = 0.0) -> datetime:
    return START + timedelta(hours=hours, minutes=minutes)


@pytest.fixture(scope="module")
def first() -> Stored:
    return rotation.advance(None, TERMS, START)


@pytest.fixture(scope="module")
def staged(first: Stored) -> Stored:
    return rotation.advance(first, TERMS, after(hours=7.1))


def authorities(stored: Stored) -> int:
    return len(certificates.authorities(stored.bundle_pem))


def test_the_leaf_names_the_service_as_the_api_server_calls_it(first: Stored) -> None:
    # FC-095: a common name alone is not accepted.
    leaf = x509.load_pem_x509_certificate(first.certificate_pem)
    san = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    names = set(san.get_values_for_type(x509.DNSName))
    assert {
        "sojourn-webhook.sojourn-system",
        "sojourn-webhook.sojourn-system.svc",
        "sojourn-webhook.sojourn-system.svc.cluster.local",
    } <= names


def test_a_good_certificate_is_left_alone(first: Stored) -> None:
    assert rotation.advance(first, TERMS, after(hours=6.9)) is first


def test_near_its_end_a_new_one_is_trusted_before_it_is_served(
    first: Stored, staged: Stored
) -> None:
    assert staged.certificate_pem == first.certificate_pem
    assert certificates.trusted(staged.next_certificate_pem, staged.bundle_pem)
    assert certificates.trusted(staged.certificate_pem, staged.bundle_pem)
    assert rotation.advance(staged, TERMS, after(hours=7.1, minutes=9)) is staged


def test_after_the_overlap_the_new_one_is_served_and_the_old_ca_stays(staged: Stored) -> None:
    served = rotation.advance(staged, TERMS, after(hours=7.1, minutes=11))
    assert served.certificate_pem == staged.next_certificate_pem
    assert not served.next_certificate_pem
    assert authorities(served) == 2
    assert rotation.advance(served, TERMS, after(hours=7.1, minutes=15)) is served


def test_when_every_process_serves_the_new_one_the_old_ca_goes(staged: Stored) -> None:
    served = rotation.advance(staged, TERMS, after(hours=7.1, minutes=11))
    done = rotation.advance(served, TERMS, after(hours=7.1, minutes=21))
    assert authorities(done) == 1
    assert certificates.trusted(done.certificate_pem, done.bundle_pem)
    assert rotation.advance(done, TERMS, after(hours=8)) is done


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param({"certificate_pem": b"junk"}, id="certificate"),
        pytest.param({"key_pem": b""}, id="key"),
        pytest.param({"bundle_pem": b""}, id="bundle"),
    ],
)
def test_what_cannot_be_served_is_replaced_at_once(first: Stored, damage: dict[str, bytes]) -> None:
    mended = rotation.advance(replace(first, **damage), TERMS, after(hours=1))
    assert rotation.serviceable(mended, TERMS, after(hours=1))


def test_a_replaced_certificate_leaves_the_old_ca_trusted(first: Stored) -> None:
    renamed = replace(TERMS, names=(*NAMES, "another.example"))
    mended = rotation.advance(first, renamed, after(hours=1))
    assert authorities(mended) == 2
    assert certificates.trusted(first.certificate_pem, mended.bundle_pem)


def test_a_key_of_another_certificate_is_not_served(first: Stored, staged: Stored) -> None:
    mixed = replace(first, key_pem=staged.next_key_pem)
    assert not rotation.serviceable(mixed, TERMS, START)


def test_a_staged_pair_that_cannot_be_read_is_staged_anew(staged: Stored) -> None:
    broken = replace(staged, next_key_pem=b"junk")
    again = rotation.advance(broken, TERMS, after(hours=7.2))
    assert not again.next_certificate_pem
    assert rotation.advance(again, TERMS, after(hours=7.2)).next_certificate_pem


def test_an_ended_certificate_is_replaced() -> None:
    first = rotation.advance(None, TERMS, START)
    later = rotation.advance(first, TERMS, after(hours=11))
    assert rotation.serviceable(later, TERMS, after(hours=11))
    assert authorities(later) == 1


@given(st.lists(st.floats(0.5, 200.0), min_size=1, max_size=30))
def test_at_any_pace_what_is_served_before_or_after_a_step_is_trusted(
    minutes: list[float],
) -> None:
    terms = replace(TERMS, life=timedelta(hours=4), renew_before=timedelta(hours=2))
    now, state = START, rotation.advance(None, terms, START)
    for passed in minutes:
        now += timedelta(minutes=passed)
        following = rotation.advance(state, terms, now)
        # Processes that have not looked yet serve the old leaf under the new bundle.
        if rotation.serviceable(state, terms, now):
            assert certificates.trusted(state.certificate_pem, following.bundle_pem)
        assert rotation.serviceable(following, terms, now)
        state = following
