"""Certificates of the admission server: a CA and a leaf, made with the cryptography package."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import IPv4Address

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CLOCK_SKEW = timedelta(minutes=5)
"""A certificate is valid this long before it is made: clocks of other hosts may lag."""
LOOPBACK = IPv4Address("127.0.0.1")
"""Also named, so that a process beside the API server can be called by URL."""
LEAF_LIFE = timedelta(days=365)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, PEM; and the CA that signed it."""

    ca_pem: bytes
    certificate_pem: bytes
    key_pem: bytes


def service_names(service: str, namespace: str) -> tuple[str, ...]:
    """DNS names under which the API server may call a service."""
    return (
        "localhost",
        service,
        f"{service}.{namespace}",
        f"{service}.{namespace}.svc",
        f"{service}.{namespace}.svc.cluster.local",
    )


def issue(names: tuple[str, ...], now: datetime, life: timedelta = LEAF_LIFE) -> Pair:
    """A new CA and a leaf for ``names``; the CA's key is forgotten, so nothing else is signed.

    Both end together: a CA that signs one leaf has no reason to outlive it.
    """
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sojourn webhook CA")])
    identifier = x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key())
    ca = (
        _builder(ca_name, ca_name, ca_key.public_key(), now, life)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(identifier, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[-1][:64])])
    alternatives = [*(x509.DNSName(name) for name in names), x509.IPAddress(LOOPBACK)]
    leaf = (
        _builder(subject, ca_name, key.public_key(), now, life)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        # CAs of one bundle share a name: the identifier says which of them signed this leaf.
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier),
            critical=False,
        )
        .sign(ca_key, hashes.SHA256())
    )
    return Pair(
        ca.public_bytes(serialization.Encoding.PEM),
        leaf.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


def readable(certificate_pem: bytes, key_pem: bytes) -> x509.Certificate | None:
    """The leaf, when certificate and key can be read and belong together; else None."""
    try:
        leaf = x509.load_pem_x509_certificate(certificate_pem)
        key = serialization.load_pem_private_key(key_pem, password=None)
    except (ValueError, TypeError):
        return None
    form = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    same = leaf.public_key().public_bytes(*form) == key.public_key().public_bytes(*form)
    return leaf if same else None


def covers(leaf: x509.Certificate, names: tuple[str, ...]) -> bool:
    """True when the leaf names all of them; a common name alone does not count."""
    try:
        san = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    return set(names) <= set(san.get_values_for_type(x509.DNSName))


def authorities(bundle_pem: bytes) -> tuple[x509.Certificate, ...]:
    """The certificates of a bundle; none when it cannot be read."""
    try:
        return tuple(x509.load_pem_x509_certificates(bundle_pem)) if bundle_pem else ()
    except ValueError:
        return ()


def signed(leaf: x509.Certificate, authority: x509.Certificate) -> bool:
    """True when ``authority`` signed ``leaf``."""
    try:
        leaf.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def trusted(certificate_pem: bytes, bundle_pem: bytes) -> bool:
    """True when a bundle holds the authority that signed a leaf."""
    try:
        leaf = x509.load_pem_x509_certificate(certificate_pem)
    except ValueError:
        return False
    return any(signed(leaf, one) for one in authorities(bundle_pem))


def pem_of(chosen: Iterable[x509.Certificate]) -> bytes:
    """Certificates as one bundle."""
    return b"".join(one.public_bytes(serialization.Encoding.PEM) for one in chosen)


def issued_at(leaf: x509.Certificate) -> datetime:
    """When a leaf of ours was made."""
    return leaf.not_valid_before_utc + CLOCK_SKEW


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime,
    life: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + life)
    )
