"""The TLS context of a listener while the broker runs: made anew when settings or files change, never for the worse."""

from __future__ import annotations

import logging
import ssl
from typing import Any

from penstock.security.tls_material import CertificateFacts, TlsMaterial, TlsSettingsError

__all__ = ["ListenerTls", "checked_material"]

logger = logging.getLogger(__name__)

DAY_SECONDS = 24 * 3600
WARNED_BEFORE_SECONDS = 14 * DAY_SECONDS
_NAMES = (
    "ssl.cipher.suites",
    "ssl.client.auth",
    "ssl.enabled.protocols",
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
)


def _check_names(settings: Any, listener: str, old: CertificateFacts, new: CertificateFacts) -> None:
    """A certificate that carries other names is another server: that is only taken when somebody says so."""
    if old.subject != new.subject and not settings["ssl.allow.dn.changes"]:
        raise TlsSettingsError(
            f"listener {listener}: the new certificate is {new.subject}, the old one {old.subject}:"
            " set ssl.allow.dn.changes=true if that is meant"
        )
    if not old.alternative_names <= new.alternative_names and not settings["ssl.allow.san.changes"]:
        missing = ", ".join(sorted(old.alternative_names - new.alternative_names))
        raise TlsSettingsError(
            f"listener {listener}: the new certificate lacks {missing}: set ssl.allow.san.changes=true if that is meant"
        )


def checked_material(settings: Any, listener: str, protocol: str, old: CertificateFacts | None) -> TlsMaterial:
    """Raises TlsSettingsError unless this listener could go on with these settings."""
    material = TlsMaterial(settings, listener, protocol)
    material.server_context()
    if old is not None:
        _check_names(settings, listener, old, material.facts())
    return material


class ListenerTls:
    """`context` is what new connections use; `refresh` looks whether anything has changed."""

    def __init__(self, settings: Any, listener: str, protocol: str) -> None:
        self._settings = settings
        self._listener = listener
        self._protocol = protocol
        material = TlsMaterial(settings, listener, protocol)
        self.context: ssl.SSLContext = material.server_context()
        self.facts = material.facts()
        self._seen = self._signature(material)
        self._told_at_s = float("-inf")

    def ends_in_seconds(self, now_s: float) -> float:
        """Until the certificate in use is refused by clients; negative: since when it is."""
        return self.facts.expires.timestamp() - now_s

    def warn_of_end(self, now_s: float) -> None:
        """Once a day from two weeks before."""
        left_s = self.ends_in_seconds(now_s)
        if left_s > WARNED_BEFORE_SECONDS or now_s - self._told_at_s < DAY_SECONDS:
            return
        self._told_at_s = now_s
        ends = "has ended" if left_s <= 0 else "ends"
        logger.warning(
            "listener=%s: its certificate %s at %s; a renewed one in the same files is taken without a restart",
            self._listener,
            ends,
            self.facts.expires,
        )

    def refresh(self) -> None:
        material = TlsMaterial(self._settings, self._listener, self._protocol)
        signature = self._signature(material)
        if signature == self._seen:
            return
        self._seen = signature
        try:
            material = checked_material(self._settings, self._listener, self._protocol, self.facts)
            self.context, self.facts = material.server_context(), material.facts()
        except (TlsSettingsError, OSError) as error:
            logger.error("the certificate in use stays: %s", error)
            return
        logger.info(
            "listener=%s has a new certificate or new TLS settings, the certificate ends at %s",
            self._listener,
            self.facts.expires,
        )

    def _signature(self, material: TlsMaterial) -> tuple[Any, ...]:
        stamps: list[Any] = []
        for path in material.files():
            try:
                stat = path.stat()
                stamps.append((str(path), stat.st_mtime_ns, stat.st_size, stat.st_ino))
            except OSError:
                stamps.append((str(path), None))
        return (*(material.value(name) for name in _NAMES), *stamps)
