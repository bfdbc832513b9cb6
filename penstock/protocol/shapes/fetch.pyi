# Rendered from Kafka's message schemas by `make docs`; do not edit.

from uuid import UUID

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class Fetch(Api):
    class FetchPartition(Struct):
        partition: int
        fetch_offset: int
        partition_max_bytes: int
        log_start_offset: int
        current_leader_epoch: int
        last_fetched_epoch: int
        replica_directory_id: UUID
        high_watermark: int
        def __init__(
            self,
            *,
            partition: int = ...,
            fetch_offset: int = ...,
            partition_max_bytes: int = ...,
            log_start_offset: int = ...,
            current_leader_epoch: int = ...,
            last_fetched_epoch: int = ...,
            replica_directory_id: UUID = ...,
            high_watermark: int = ...,
        ) -> None: ...

    class FetchTopic(Struct):
        topic: str
        partitions: list[Fetch.FetchPartition]
        topic_id: UUID
        def __init__(
            self,
            *,
            topic: str = ...,
            partitions: list[Fetch.FetchPartition] = ...,
            topic_id: UUID = ...,
        ) -> None: ...

    class Request(Struct):
        replica_id: int
        max_wait_ms: int
        min_bytes: int
        max_bytes: int
        isolation_level: int
        topics: list[Fetch.FetchTopic]
        session_id: int
        session_epoch: int
        forgotten_topics_data: list[Fetch.ForgottenTopic]
        rack_id: str
        cluster_id: str | None
        replica_state: Fetch.ReplicaState
        def __init__(
            self,
            *,
            replica_id: int = ...,
            max_wait_ms: int = ...,
            min_bytes: int = ...,
            max_bytes: int = ...,
            isolation_level: int = ...,
            topics: list[Fetch.FetchTopic] = ...,
            session_id: int = ...,
            session_epoch: int = ...,
            forgotten_topics_data: list[Fetch.ForgottenTopic] = ...,
            rack_id: str = ...,
            cluster_id: str | None = ...,
            replica_state: Fetch.ReplicaState = ...,
        ) -> None: ...

    class ForgottenTopic(Struct):
        topic: str
        partitions: list[int]
        topic_id: UUID
        def __init__(
            self,
            *,
            topic: str = ...,
            partitions: list[int] = ...,
            topic_id: UUID = ...,
        ) -> None: ...

    class ReplicaState(Struct):
        replica_id: int
        replica_epoch: int
        def __init__(
            self,
            *,
            replica_id: int = ...,
            replica_epoch: int = ...,
        ) -> None: ...

    class AbortedTransaction(Struct):
        producer_id: int
        first_offset: int
        def __init__(
            self,
            *,
            producer_id: int = ...,
            first_offset: int = ...,
        ) -> None: ...

    class PartitionData(Struct):
        partition_index: int
        error_code: int
        high_watermark: int
        last_stable_offset: int
        aborted_transactions: list[Fetch.AbortedTransaction] | None
        records: bytes | None
        log_start_offset: int
        preferred_read_replica: int
        diverging_epoch: Fetch.EpochEndOffset
        current_leader: Fetch.LeaderIdAndEpoch
        snapshot_id: Fetch.SnapshotId
        def __init__(
            self,
            *,
            partition_index: int = ...,
            error_code: int = ...,
            high_watermark: int = ...,
            last_stable_offset: int = ...,
            aborted_transactions: list[Fetch.AbortedTransaction] | None = ...,
            records: bytes | None = ...,
            log_start_offset: int = ...,
            preferred_read_replica: int = ...,
            diverging_epoch: Fetch.EpochEndOffset = ...,
            current_leader: Fetch.LeaderIdAndEpoch = ...,
            snapshot_id: Fetch.SnapshotId = ...,
        ) -> None: ...

    class FetchableTopicResponse(Struct):
        topic: str
        partitions: list[Fetch.PartitionData]
        topic_id: UUID
        def __init__(
            self,
            *,
            topic: str = ...,
            partitions: list[Fetch.PartitionData] = ...,
            topic_id: UUID = ...,
        ) -> None: ...

    class Response(Struct):
        throttle_time_ms: int
        responses: list[Fetch.FetchableTopicResponse]
        error_code: int
        session_id: int
        node_endpoints: list[Fetch.NodeEndpoint]
        def __init__(
            self,
            *,
            throttle_time_ms: int = ...,
            responses: list[Fetch.FetchableTopicResponse] = ...,
            error_code: int = ...,
            session_id: int = ...,
            node_endpoints: list[Fetch.NodeEndpoint] = ...,
        ) -> None: ...

    class EpochEndOffset(Struct):
        epoch: int
        end_offset: int
        def __init__(
            self,
            *,
            epoch: int = ...,
            end_offset: int = ...,
        ) -> None: ...

    class LeaderIdAndEpoch(Struct):
        leader_id: int
        leader_epoch: int
        def __init__(
            self,
            *,
            leader_id: int = ...,
            leader_epoch: int = ...,
        ) -> None: ...

    class SnapshotId(Struct):
        end_offset: int
        epoch: int
        def __init__(
            self,
            *,
            end_offset: int = ...,
            epoch: int = ...,
        ) -> None: ...

    class NodeEndpoint(Struct):
        node_id: int
        host: str
        port: int
        rack: str | None
        def __init__(
            self,
            *,
            node_id: int = ...,
            host: str = ...,
            port: int = ...,
            rack: str | None = ...,
        ) -> None: ...

