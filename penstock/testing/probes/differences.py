"""Where Penstock answers otherwise than Apache Kafka, and why. docs/differences.md is rendered from here.

PROBES: differences that the probes see; the oracle test fails for any other, and for one of these that is gone.
BY_DESIGN: differences that no probe shows.
"""

from __future__ import annotations

PROBES: dict[str, str] = {
    "produce: null records": (
        "Kafka 4.3 never answers a produce whose records are null and leaves the client waiting; Penstock answers"
        " INVALID_RECORD at once."
    ),
    "incremental alter configs: an unknown operation": (
        "Kafka answers UNKNOWN_SERVER_ERROR; Penstock says what it is, INVALID_REQUEST."
    ),
}

BY_DESIGN: dict[str, str] = {
    "Record counts inside compressed batches": (
        "Kafka decompresses every batch and counts its records. Penstock trusts the batch header unless it has to open"
        " the batch (compacted topic, another codec): a lie in the header is found by the reader."
    ),
    "Timestamps inside batches": (
        "Kafka checks each record's timestamp against `message.timestamp.before.max.ms` and `.after.max.ms`; Penstock"
        " checks the first and the highest, which the header carries."
    ),
    "Coordination": (
        "Kafka 4 has no ZooKeeper any more. Penstock keeps the layout of Kafka 3.9 in ZooKeeper, or in an embedded"
        " store on a single node; KRaft-only APIs (Vote, FetchSnapshot, …) do not exist here."
    ),
    "Topic creation": (
        "CreateTopics is answered when the partitions have leaders on the broker that was asked: Kafka answers a moment"
        " earlier, and a produce right behind it may have to be repeated."
    ),
    "Two-phase commit": (
        "InitProducerId v6 keeps prepared transactions (KIP-939 completely): all leaders refuse the former writer "
        "before it is answered; CONCURRENT_TRANSACTIONS while one of them cannot be told. Kafka 4.3 refuses that flag."
    ),
    "A lost disk": (
        "Kafka makes the replicas of a replaced disk anew once it is formatted. Penstock keeps them off line until the"
        " operator says `penstock log accept-loss`, and even then while nobody else leads: an empty replica that is the"
        " last of its ISR would cut all others to nothing."
    ),
    "A segment that is too short": (
        "Kafka closes the connection at each fetch of it, healthy partitions included. Penstock does so once, when the"
        " file shrinks under a fetch; then that partition alone is answered CORRUPT_MESSAGE. A wrong magic or"
        " checksum inside a batch is given out as it is by both, for the reader to find; at a batch whose size is wrong"
        " Kafka gives nothing, Penstock the bytes that are there."
    ),
    "A full disk": (
        "Kafka takes the folder off line and leaves the partition to another replica. Penstock answers"
        " KAFKA_STORAGE_ERROR, goes on reading, and writes again when there is space."
    ),
    "Batches behind a refused one": (
        "When a batch of an idempotent producer was refused for want of disk or replicas, those that stand in the pipe"
        " behind it get the same error until it comes again. Kafka says OUT_OF_ORDER_SEQUENCE_NUMBER, upon which"
        " librdkafka begins a new epoch and may store batches of other partitions twice."
    ),
    "Who speaks as a broker": (
        "Kafka without an authorizer lets anybody fetch as a follower, verify transactions (AddPartitionsToTxn v4+) and"
        " ask for epochs as a replica. Penstock wants a connection that is proven to be that broker (SECURITY.md), and"
        " answers others as Kafka answers those without CLUSTER_ACTION."
    ),
    "Security settings without an effect": (
        "Kafka accepts settings that it does not use. Penstock refuses security settings that would do nothing here"
        " (Java classes and providers, Kerberos, `password.encoder.*`) and those of listeners that do not exist"
        " or have no TLS or SASL of their own."
        " `listeners` and `listener.security.protocol.map` do not change while a broker runs."
    ),
    "SASL": (
        "No GSSAPI; SaslHandshake v0 (tokens without Kafka's header) is not served; OAUTHBEARER never accepts unsigned"
        " tokens; a token's end ends the session also without `connections.max.reauth.ms`; deleting a user or token"
        " closes its connections; tokens for other owners need an authorizer."
    ),
    "TLS": ("Key and trust stores are PEM or PKCS12, not JKS. The suites of TLS 1.3 cannot be chosen one by one."),
    "Share groups, streams groups, telemetry, tiered storage": "not there; not advertised.",
    "Index files": "kept at their exact size instead of preallocated; Kafka reads both.",
}
