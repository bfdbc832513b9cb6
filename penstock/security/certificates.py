"""An authority of one's own and the certificates that it signs: what `penstock up --secure` and tests begin with."""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["Authority", "Issued", "write_private"]

AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 825
_PEM = serialization.Encoding.PEM


def write_private(path: Path, data: bytes) -> None:
    """A file that its owner alone can read, from its first byte on."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(data)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate with its key, as PEM."""

    certificate: bytes
    key: bytes

    @property
    def both(self) -> bytes:
        """In one file, as `ssl.keystore.location` wants it."""
        return self.certificate + self.key


class Authority:
    """Signs certificates. Its own key should not lie where the broker's data is."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._key = key
        self._certificate = certificate

    @classmethod
    def create(cls, name: str = "Penstock authority") -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(subject, subject, key.public_key(), AUTHORITY_DAYS)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        return cls(key, builder.add_extension(identifier, critical=False).sign(key, hashes.SHA256()))

    @classmethod
    def load(cls, certificate: bytes, key: bytes) -> Authority:
        loaded = serialization.load_pem_private_key(key, None)
        if not isinstance(loaded, ec.EllipticCurvePrivateKey):
            raise ValueError("the authority's key is not one of ours")
        return cls(loaded, x509.load_pem_x509_certificate(certificate))

    @property
    def certificate(self) -> bytes:
        return self._certificate.public_bytes(_PEM)

    @property
    def key(self) -> bytes:
        return _key_pem(self._key)

    def issue(
        self, name: str, hosts: Iterable[str] = (), *, organisation: str | None = None, days: int = CERTIFICATE_DAYS
    ) -> Issued:
        """For a server under these host names and addresses, or for a client without any."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
        if organisation:
            names.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation))
        builder = _builder(x509.Name(names), self._certificate.subject, key.public_key(), days)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        alternatives = [_alternative(host) for host in dict.fromkeys(hosts)]
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        signed = builder.sign(self._key, hashes.SHA256())
        return Issued(signed.public_bytes(_PEM), _key_pem(key))


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))  # clocks differ
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
