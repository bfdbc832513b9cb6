"""Broker ids and the connection to ZooKeeper."""

# One setting is two lines: the facts, then the sentence. A formatter would make it eight.
# fmt: off

from __future__ import annotations

from penstock.base.settings.model import (
    BOOLEAN,
    INT,
    LIST,
    PASSWORD,
    STRING,
    Effect,
    Scope,
    Setting,
    at_least,
    one_of,
)

READ_ONLY = Scope.READ_ONLY

ZOOKEEPER: tuple[Setting, ...] = (
    Setting("broker.id", INT, -1, None, READ_ONLY,
            "This broker's number in the cluster; -1 lets the cluster choose one."),
    Setting("broker.id.generation.enable", BOOLEAN, True, None, READ_ONLY,
            "Whether a broker without an id gets one above reserved.broker.max.id.", Effect.ACCEPTED),
    Setting("node.id", INT, -1, at_least(-1), READ_ONLY,
            "This broker's number, in the words of newer releases."),
    Setting("reserved.broker.max.id", INT, 1000, at_least(0), READ_ONLY,
            "Highest id that may be given by hand while ids are also given out."),
    Setting("zookeeper.connect", STRING, None, None, READ_ONLY,
            "ZooKeeper servers as host:port/path; without it the node keeps its metadata in an embedded store."),
    Setting("zookeeper.connection.timeout.ms", INT, None, None, READ_ONLY,
            "Time for the first connection to ZooKeeper; the session timeout if not set."),
    Setting("zookeeper.max.in.flight.requests", INT, 10, at_least(1), READ_ONLY,
            "Requests that may wait for ZooKeeper's answer at a time.", Effect.ACCEPTED),
    Setting("zookeeper.session.timeout.ms", INT, 18_000, None, READ_ONLY,
            "Time without contact after which ZooKeeper ends this broker's session."),
    Setting("zookeeper.set.acl", BOOLEAN, False, None, READ_ONLY,
            "Whether znodes are protected so that only brokers change them."),
    Setting("zookeeper.ssl.cipher.suites", LIST, None, None, READ_ONLY,
            "Cipher suites towards ZooKeeper.", Effect.REFUSED),
    Setting("zookeeper.ssl.client.enable", BOOLEAN, False, None, READ_ONLY,
            "Whether ZooKeeper is reached over TLS."),
    Setting("zookeeper.ssl.crl.enable", BOOLEAN, False, None, READ_ONLY,
            "Whether revocation lists are asked.", Effect.REFUSED),
    Setting("zookeeper.ssl.enabled.protocols", LIST, None, None, READ_ONLY,
            "TLS versions towards ZooKeeper.", Effect.REFUSED),
    Setting("zookeeper.ssl.endpoint.identification.algorithm", STRING, "HTTPS", None, READ_ONLY,
            "Whether ZooKeeper's host name is checked; empty turns it off."),
    Setting("zookeeper.ssl.keystore.location", STRING, None, None, READ_ONLY,
            "File with certificate and key for ZooKeeper, in PEM."),
    Setting("zookeeper.ssl.keystore.password", PASSWORD, None, None, READ_ONLY,
            "Password of that key."),
    Setting("zookeeper.ssl.keystore.type", STRING, None, one_of("PEM"), READ_ONLY,
            "Kind of key store for ZooKeeper; Penstock reads PEM."),
    Setting("zookeeper.ssl.ocsp.enable", BOOLEAN, False, None, READ_ONLY,
            "Whether certificate status is asked online.", Effect.REFUSED),
    Setting("zookeeper.ssl.protocol", STRING, "TLSv1.2", None, READ_ONLY,
            "TLS version towards ZooKeeper.", Effect.REFUSED),
    Setting("zookeeper.ssl.truststore.location", STRING, None, None, READ_ONLY,
            "File with the authorities that ZooKeeper's certificate may come from, in PEM."),
    Setting("zookeeper.ssl.truststore.password", PASSWORD, None, None, READ_ONLY,
            "Password of a Java trust store for ZooKeeper.", Effect.REFUSED),
    Setting("zookeeper.ssl.truststore.type", STRING, None, one_of("PEM"), READ_ONLY,
            "Kind of trust store for ZooKeeper; Penstock reads PEM."),
)
