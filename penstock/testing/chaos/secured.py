"""A cluster behind locks: SASL_SSL between brokers and to clients, TLS and SASL to ZooKeeper, its nodes with ACLs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from penstock.security.certificates import Authority, write_private

BROKER, CLIENT = "broker", "anna"
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required username=broker password=broker-secret"
    " user_broker=broker-secret user_anna=anna-secret;"
)
ZOOKEEPER_LOGIN = 'Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_penstock="zk-secret"; };\n'


class Secured:
    """Certificates in a folder, and what each party has to be told to use them."""

    def __init__(self, folder: Path, addresses: Sequence[str]) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        authority = Authority.create()
        write_private(self.ca, authority.certificate)
        write_private(self._certificate, authority.issue("chaos", sorted({"localhost", *addresses})).both)
        (folder / "login.conf").write_text(ZOOKEEPER_LOGIN)

    @property
    def ca(self) -> Path:
        return self._folder / "ca.pem"

    @property
    def _certificate(self) -> Path:
        return self._folder / "host.pem"

    def broker_settings(self) -> dict[str, str]:
        return {
            "security.inter.broker.protocol": "SASL_SSL",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.jaas.config": JAAS,
            "super.users": f"User:{BROKER}",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._certificate),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.truststore.location": str(self.ca),
            "zookeeper.ssl.keystore.location": str(self._certificate),
            "penstock.zookeeper.auth": "sasl:penstock:zk-secret",
            "zookeeper.set.acl": "true",
        }

    def client_settings(self) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": CLIENT,
            "sasl.password": f"{CLIENT}-secret",
            "ssl.ca.location": str(self.ca),
        }

    def zookeeper_properties(self, secure_port: int) -> dict[str, str]:
        """Its plain port stays for the four-letter words: sessions without a login are refused there, too."""
        return {
            "secureClientPort": str(secure_port),
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": str(self._certificate),
            "ssl.keyStore.type": "PEM",
            "ssl.trustStore.location": str(self.ca),
            "ssl.trustStore.type": "PEM",
            "ssl.clientAuth": "need",
            "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            "sessionRequireClientSASLAuth": "true",
        }

    def zookeeper_java_options(self) -> list[str]:
        return [f"-Djava.security.auth.login.config={self._folder / 'login.conf'}"]
