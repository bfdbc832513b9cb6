"""Keys and certificates of a listener as its settings name them, and the TLS contexts made of them.

PEM files, PEM text in the settings, and PKCS12 stores are read; Java's own JKS is not. Settings are Kafka's `ssl.*`,
also under `listener.name.<listener>.`.
"""

from __future__ import annotations

import re
import ssl
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["CertificateFacts", "TlsMaterial", "TlsSettingsError"]

_MODES = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_SUITES_13 = frozenset({"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"})


class TlsSettingsError(Exception):
    """TLS cannot be spoken with these settings; the message names listener and setting."""


class CertificateFacts:
    """What others recognise a certificate by: its subject and its alternative names."""

    def __init__(self, pem: bytes) -> None:
        from cryptography import x509

        certificate = x509.load_pem_x509_certificate(pem)
        self.subject = certificate.subject.rfc4514_string()
        self.expires = certificate.not_valid_after_utc
        try:
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            self.alternative_names = frozenset(str(name.value) for name in names)
        except x509.ExtensionNotFound:
            self.alternative_names = frozenset()


class TlsMaterial:
    """What one listener's settings say about TLS at the moment they are read."""

    def __init__(self, settings: Any, listener: str, protocol: str = "SSL") -> None:
        self._settings = settings
        self.listener = listener
        self._protocol = protocol

    def value(self, name: str) -> Any:
        return self._settings.listener_value(self.listener, name)

    def text(self, name: str) -> str | None:
        found = self.value(name)
        return None if found is None or found == "" else str(found)

    def files(self) -> list[Path]:
        """The files that the contexts were made of."""
        names = (self.text("ssl.keystore.location"), self.text("ssl.truststore.location"))
        return [Path(name) for name in names if name]

    # --- contexts ---

    def server_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._limit(context)
        if not self._load_key(context):
            raise self._wrong("set ssl.keystore.location, or its certificate chain and key")
        trusted = self._load_trust(context)
        context.verify_mode = _MODES[self._client_auth()]
        if context.verify_mode != ssl.CERT_NONE and not trusted:
            raise self._wrong("ssl.client.auth needs ssl.truststore.location: whose certificates are accepted?")
        return context

    def client_context(self) -> ssl.SSLContext:
        """For the connections that this broker opens to the same listener of others."""
        context = ssl.create_default_context()
        self._limit(context)
        self._load_key(context)
        self._load_trust(context)
        context.check_hostname = bool((self.text("ssl.endpoint.identification.algorithm") or "").strip())
        return context

    def _client_auth(self) -> str:
        # With SASL the certificate is not who the client is: as in Kafka only the listener's own setting asks for one.
        if self._protocol == "SASL_SSL" and not self._settings.explicit_for_listener(self.listener, "ssl.client.auth"):
            return "none"
        return str(self.value("ssl.client.auth") or "none").lower()

    def _limit(self, context: ssl.SSLContext) -> None:
        versions = list(self.value("ssl.enabled.protocols") or _VERSIONS)
        unknown = [name for name in versions if name not in _VERSIONS]
        if unknown:
            raise self._wrong(f"ssl.enabled.protocols holds {unknown[0]}; TLSv1.2 and TLSv1.3 are offered")
        wanted = {_VERSIONS[name] for name in versions}
        suites = list(self.value("ssl.cipher.suites") or ())
        if suites:
            wanted &= self._limit_suites(context, suites)
            if not wanted:
                raise self._wrong("ssl.cipher.suites has none for the versions of ssl.enabled.protocols")
        context.minimum_version, context.maximum_version = min(wanted), max(wanted)

    def _limit_suites(self, context: ssl.SSLContext, suites: Sequence[str]) -> set[ssl.TLSVersion]:
        """Python chooses suites of TLS 1.2 only: those of 1.3 are all or none."""
        new = _SUITES_13.intersection(suites)
        if new and new != _SUITES_13:
            raise self._wrong(
                "ssl.cipher.suites: the suites of TLS 1.3 cannot be chosen one by one; name all of"
                f" {', '.join(sorted(_SUITES_13))}, or none to turn TLS 1.3 off"
            )
        old = [_openssl_name(name) for name in suites if name not in _SUITES_13]
        if old:
            try:
                context.set_ciphers(":".join(old))
            except ssl.SSLError:
                raise self._wrong(f"ssl.cipher.suites: no suite of {', '.join(suites)} is known") from None
            known = {cipher["name"] for cipher in context.get_ciphers()}
            missing = [name for name in old if name not in known]
            if missing:
                raise self._wrong(f"ssl.cipher.suites: {missing[0]} is not known")
        found = {ssl.TLSVersion.TLSv1_3} if new else set()
        return found | ({ssl.TLSVersion.TLSv1_2} if old else set())

    # --- key and trust ---

    def _load_key(self, context: ssl.SSLContext) -> bool:
        password = self.text("ssl.key.password")
        location = self.text("ssl.keystore.location")
        kind = (self.text("ssl.keystore.type") or "JKS").upper()
        if location is None and self.text("ssl.keystore.key") is None:
            return False
        try:
            if kind == "PEM" and location:
                context.load_cert_chain(location, password=password or "")
                return True
            with tempfile.NamedTemporaryFile(suffix=".pem") as file:  # mode 0600; the ssl module only reads files
                file.write(self.key_pem())
                file.flush()
                context.load_cert_chain(file.name, password=password or "")
        except (OSError, ValueError, ssl.SSLError) as error:
            raise self._wrong(f"the certificate cannot be loaded: {_reason(error)}") from error
        return True

    def key_pem(self) -> bytes:
        """Certificate chain and key as one PEM text."""
        location = self.text("ssl.keystore.location")
        kind = (self.text("ssl.keystore.type") or "JKS").upper()
        if kind == "PEM":
            if location:
                return Path(location).read_bytes()
            chain, key = self.text("ssl.keystore.certificate.chain"), self.text("ssl.keystore.key")
            if not chain or not key:
                raise self._wrong("set ssl.keystore.location, or its certificate chain and key")
            return f"{chain}\n{key}\n".encode()
        if kind == "PKCS12" and location:
            return _pkcs12_pem(Path(location).read_bytes(), self.text("ssl.keystore.password"))
        raise self._wrong(f"ssl.keystore.type={kind}, only PEM and PKCS12 can be read")

    def facts(self) -> CertificateFacts:
        """Of the certificate that this listener shows."""
        return CertificateFacts(self.key_pem())

    def _load_trust(self, context: ssl.SSLContext) -> bool:
        location, text = self.text("ssl.truststore.location"), self.text("ssl.truststore.certificates")
        kind = (self.text("ssl.truststore.type") or "JKS").upper()
        try:
            if location and kind == "PEM":
                context.load_verify_locations(cafile=location)
            elif location and kind == "PKCS12":
                data = Path(location).read_bytes()
                context.load_verify_locations(cadata=_pkcs12_trust(data, self.text("ssl.truststore.password")))
            elif location:
                raise self._wrong(f"ssl.truststore.type={kind}, only PEM and PKCS12 can be read")
            elif text:
                context.load_verify_locations(cadata=text)
        except (OSError, ValueError, ssl.SSLError) as error:
            raise self._wrong(f"the trusted certificates cannot be loaded: {_reason(error)}") from error
        return bool(location or text)

    def _wrong(self, what: str) -> TlsSettingsError:
        return TlsSettingsError(f"listener {self.listener}: {what}")


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or "not PEM, or the wrong password"
    return str(error)


def _pkcs12_pem(data: bytes, password: str | None) -> bytes:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.serialization import pkcs12

    key, certificate, others = pkcs12.load_key_and_certificates(data, (password or "").encode() or None)
    if key is None or certificate is None:
        raise ValueError("the store holds no private key")
    encoding = serialization.Encoding.PEM
    chain = b"".join(one.public_bytes(encoding) for one in (certificate, *others))
    return chain + key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def _pkcs12_trust(data: bytes, password: str | None) -> str:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.serialization import pkcs12

    store = pkcs12.load_pkcs12(data, (password or "").encode() or None)
    found = [store.cert, *store.additional_certs] if store.cert else list(store.additional_certs)
    if not found:
        raise ValueError("the store holds no certificates")
    return "".join(one.certificate.public_bytes(serialization.Encoding.PEM).decode() for one in found)


def _openssl_name(name: str) -> str:
    """`TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`, as Java knows it, is OpenSSL's `ECDHE-RSA-AES128-GCM-SHA256`."""
    if not name.startswith("TLS_"):
        return name
    name = name.removeprefix("TLS_").replace("RSA_WITH_", "RSA_").replace("ECDSA_WITH_", "ECDSA_")
    if name.startswith("RSA_"):
        name = name.removeprefix("RSA_")
    name = re.sub(r"AES_(128|256)", r"AES\1", name).replace("_CBC_", "_").replace("POLY1305_SHA256", "POLY1305")
    return name.replace("_", "-")
