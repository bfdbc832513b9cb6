"""How to prove who we are: `Security` from properties as librdkafka and Java clients take them."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

__all__ = ["PROPERTY_NAMES", "Security"]

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PROPERTY_NAMES = frozenset(
    {
        "enable.ssl.certificate.verification",
        "sasl.jaas.config",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.oauthbearer.token",
        "sasl.password",
        "sasl.username",
        "security.protocol",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.type",
    }
)


@dataclass(frozen=True, slots=True)
class Security:
    """Transport and credentials of a client. The default is plain text without a name."""

    protocol: str = "PLAINTEXT"
    mechanism: str = "PLAIN"
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    token_provider: Callable[[], str] | None = field(default=None, repr=False)
    token_auth: bool = False  # username and password are a delegation token's id and secret
    ca_location: str | None = None
    ca_pem: str | None = None
    certificate_location: str | None = None
    key_location: str | None = None
    key_password: str | None = field(default=None, repr=False)
    verify_certificate: bool = True
    verify_host_name: bool = True
    context_factory: Callable[[], ssl.SSLContext] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise ValueError(f"security.protocol is {self.protocol!r}; it can be {', '.join(PROTOCOLS)}")
        if not self.sasl:
            return
        if self.mechanism not in MECHANISMS:
            raise ValueError(f"sasl.mechanism is {self.mechanism!r}; it can be {', '.join(MECHANISMS)}")
        if self.mechanism == "OAUTHBEARER":
            if self.token_provider is None:
                raise ValueError("OAUTHBEARER needs sasl.oauthbearer.token (or a token_provider in Python)")
        elif self.username is None or self.password is None:
            raise ValueError(f"{self.mechanism} needs sasl.username and sasl.password (or sasl.jaas.config)")

    @property
    def tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def sasl(self) -> bool:
        return self.protocol.startswith("SASL_")

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Security:
        """Read the security keys out of client properties; keys of other concern are not looked at."""
        get = properties.get
        jaas = _jaas_options(get("sasl.jaas.config", ""))
        token = get("sasl.oauthbearer.token")
        verify = get("enable.ssl.certificate.verification", "true").lower() != "false"
        algorithm = get("ssl.endpoint.identification.algorithm", "https").strip().lower()
        _refuse_java_stores(properties)
        return cls(
            protocol=get("security.protocol", "PLAINTEXT").strip().upper(),
            mechanism=(get("sasl.mechanism") or get("sasl.mechanisms") or "PLAIN").strip().upper(),
            username=get("sasl.username", jaas.get("username")),
            password=get("sasl.password", jaas.get("password")),
            token_provider=None if token is None else lambda: token,
            token_auth=jaas.get("tokenauth", "").lower() == "true",
            ca_location=get("ssl.ca.location") or get("ssl.truststore.location"),
            ca_pem=get("ssl.ca.pem") or get("ssl.truststore.certificates"),
            certificate_location=get("ssl.certificate.location") or get("ssl.keystore.location"),
            key_location=get("ssl.key.location"),
            key_password=get("ssl.key.password"),
            verify_certificate=verify,
            verify_host_name=verify and algorithm not in ("", "none"),
        )

    def ssl_context(self) -> ssl.SSLContext | None:
        """The TLS context to connect with, or None when the protocol has no TLS."""
        if not self.tls:
            return None
        if self.context_factory is not None:
            return self.context_factory()
        context = ssl.create_default_context(cafile=self.ca_location, cadata=self.ca_pem)
        if not self.verify_host_name:
            context.check_hostname = False
        if not self.verify_certificate:
            context.verify_mode = ssl.CERT_NONE
        if self.certificate_location:
            context.load_cert_chain(self.certificate_location, self.key_location, self.key_password)
        return context


_JAAS_OPTION = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^\s;]+))""")


def _jaas_options(text: str) -> dict[str, str]:
    options = {}
    for name, quoted, single, bare in _JAAS_OPTION.findall(text):
        options[name] = re.sub(r"\\(.)", r"\1", quoted) if quoted else single or bare
    return options


def _refuse_java_stores(properties: Mapping[str, str]) -> None:
    for store in ("ssl.truststore", "ssl.keystore"):
        location = properties.get(f"{store}.location")
        kind = properties.get(f"{store}.type", "JKS").upper()
        if location and kind != "PEM":
            instead = (
                "ssl.ca.location" if store == "ssl.truststore" else "ssl.certificate.location and ssl.key.location"
            )
            raise ValueError(
                f"{store}.location is a {kind} store; only PEM files can be read: export it and set {instead}"
            )
