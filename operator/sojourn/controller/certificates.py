"""Certificates of the admission server: a CA and a leaf, made with the cryptography package."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import IPv4Address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_LIFE = timedelta(days=3650)
LOOPBACK = IPv4Address("127.0.0.1")
"""Also named, so that the process can probe its own server."""
LEAF_LIFE = timedelta(days=365)
RENEW_BEFORE = timedelta(days=90)


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


def issue(names: tuple[str, ...], now: datetime) -> Pair:
    """A new CA and a leaf for ``names``; the CA's key is forgotten, so nothing else is signed."""
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sojourn webhook CA")])
    ca = (
        _builder(ca_name, ca_name, ca_key.public_key(), now, CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[-1][:64])])
    leaf = (
        _builder(subject, ca_name, key.public_key(), now, LEAF_LIFE)
        .add_extension(
            x509.SubjectAlternativeName(
                [*(x509.DNSName(name) for name in names), x509.IPAddress(LOOPBACK)]
            ),
            critical=False,
        )
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
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


def usable(pair: Pair, names: tuple[str, ...], now: datetime) -> bool:
    """True while the leaf names the service and has more than ``RENEW_BEFORE`` to live."""
    try:
        leaf = x509.load_pem_x509_certificate(pair.certificate_pem)
        serialization.load_pem_private_key(pair.key_pem, password=None)
        san = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, x509.ExtensionNotFound):
        return False
    covered = set(names) <= set(san.get_values_for_type(x509.DNSName))
    return covered and leaf.not_valid_after_utc - now > RENEW_BEFORE


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
        .not_valid_before(now - timedelta(minutes=5))  # clocks of other hosts may lag
        .not_valid_after(now + life)
    )
