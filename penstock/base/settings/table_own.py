"""Settings that Kafka does not have; their names start with `penstock.`."""

# One setting is two lines: the facts, then the sentence. A formatter would make it eight.
# fmt: off

from __future__ import annotations

from penstock.base.settings.model import (
    LIST,
    LONG,
    PASSWORD,
    STRING,
    Scope,
    Setting,
    one_of,
    subset_of,
    without_end_or_at_least,
)

READ_ONLY = Scope.READ_ONLY
_SIGNATURES = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")

OWN: tuple[Setting, ...] = (
    Setting("penstock.inter.broker.secret", STRING, "required", one_of("required", "accept"), READ_ONLY,
            "Whether brokers must prove who they are; accept is for an upgrade from a release that could not."),
    Setting("penstock.log.format", STRING, "text", one_of("text", "json"), READ_ONLY,
            "Form of the broker's own log lines."),
    Setting("penstock.log.level", STRING, "info", one_of("debug", "info", "warning", "error"), READ_ONLY,
            "Least important log lines that are written."),
    Setting("penstock.machine", STRING, None, None, READ_ONLY,
            "Machine that brokers share (--cores: the host's name); replicas go to different racks, then machines."),
    Setting("penstock.metrics.listener", STRING, None, None, READ_ONLY,
            "host:port that serves /metrics, /health and /ready over HTTP; off unless set."),
    Setting("penstock.oauthbearer.algorithms", LIST, _SIGNATURES, subset_of(*_SIGNATURES), READ_ONLY,
            "Algorithms that may sign OAuth tokens; those that sign with a public or no key are never allowed."),
    Setting("penstock.store.path", STRING, None, None, READ_ONLY,
            "File of the embedded metadata store; penstock.db in the first log folder if not set."),
    Setting("penstock.stray.retention.ms", LONG, 604_800_000, without_end_or_at_least(0), READ_ONLY,
            "How long replica folders are kept that the cluster does not know and nobody has deleted; -1: for ever."),
    Setting("penstock.zookeeper.auth", PASSWORD, None, None, READ_ONLY,
            "How to log in at ZooKeeper: digest:user:password or sasl:user:password; not at all if not set."),
)
