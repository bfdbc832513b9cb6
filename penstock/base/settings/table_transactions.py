"""Transaction coordinators and producer ids."""

# One setting is two lines: the facts, then the sentence. A formatter would make it eight.
# fmt: off

from __future__ import annotations

from penstock.base.settings.model import (
    BOOLEAN,
    INT,
    SHORT,
    Effect,
    Scope,
    Setting,
    at_least,
)

CLUSTER_WIDE, READ_ONLY = Scope.CLUSTER_WIDE, Scope.READ_ONLY

TRANSACTIONS: tuple[Setting, ...] = (
    Setting("add.partitions.to.txn.retry.backoff.max.ms", INT, 100, at_least(0), READ_ONLY,
            "How long a produce request may wait for an earlier transaction to finish before it fails.",
            Effect.ACCEPTED),
    Setting("add.partitions.to.txn.retry.backoff.ms", INT, 20, at_least(1), READ_ONLY,
            "Pause between tries while an earlier transaction of the producer is still being finished.",
            Effect.ACCEPTED),
    Setting("producer.id.expiration.ms", INT, 86_400_000, at_least(1), CLUSTER_WIDE,
            "Time after which the state about an idle producer is dropped."),
    Setting("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10_000, at_least(1), READ_ONLY,
            "Pause between looks for transactions that ran out of time."),
    Setting("transaction.max.timeout.ms", INT, 900_000, at_least(1), READ_ONLY,
            "Longest time-out that a transactional producer may ask for."),
    Setting("transaction.partition.verification.enable", BOOLEAN, True, None, CLUSTER_WIDE,
            "Whether a partition asks the coordinator before it takes the first record of a transaction."),
    Setting("transaction.remove.expired.transaction.cleanup.interval.ms", INT, 3_600_000, at_least(1), READ_ONLY,
            "Pause between looks for transactional ids that expired."),
    Setting("transaction.state.log.load.buffer.size", INT, 5_242_880, at_least(1), READ_ONLY,
            "Bytes read at a time while a transaction coordinator loads.", Effect.ACCEPTED),
    Setting("transaction.state.log.min.isr", INT, 2, at_least(1), READ_ONLY,
            "Replicas of the transaction topic that must be in sync."),
    Setting("transaction.state.log.num.partitions", INT, 50, at_least(1), READ_ONLY,
            "Partitions of the transaction topic; not to be changed once it exists."),
    Setting("transaction.state.log.replication.factor", SHORT, 3, at_least(1), READ_ONLY,
            "Replicas of the transaction topic."),
    Setting("transaction.state.log.segment.bytes", INT, 104_857_600, at_least(1), READ_ONLY,
            "Segment size of the transaction topic."),
    Setting("transaction.two.phase.commit.enable", BOOLEAN, False, None, READ_ONLY,
            "Whether producers may open transactions without time-out for two-phase commit."),
    Setting("transactional.id.expiration.ms", INT, 604_800_000, at_least(1), READ_ONLY,
            "Time after which an unused transactional id is forgotten."),
)
