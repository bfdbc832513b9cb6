# Rendered from Kafka's message schemas by `make docs`; do not edit.

from uuid import UUID

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class OffsetCommit(Api):
    class OffsetCommitRequestPartition(Struct):
        partition_index: int
        committed_offset: int
        committed_metadata: str | None
        committed_leader_epoch: int
        def __init__(
            self,
            *,
            partition_index: int = ...,
            committed_offset: int = ...,
            committed_metadata: str | None = ...,
            committed_leader_epoch: int = ...,
        ) -> None: ...

    class OffsetCommitRequestTopic(Struct):
        name: str
        partitions: list[OffsetCommit.OffsetCommitRequestPartition]
        topic_id: UUID
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: list[OffsetCommit.OffsetCommitRequestPartition] = ...,
            topic_id: UUID = ...,
        ) -> None: ...

    class Request(Struct):
        group_id: str
        generation_id_or_member_epoch: int
        member_id: str
        retention_time_ms: int
        topics: list[OffsetCommit.OffsetCommitRequestTopic]
        group_instance_id: str | None
        def __init__(
            self,
            *,
            group_id: str = ...,
            generation_id_or_member_epoch: int = ...,
            member_id: str = ...,
            retention_time_ms: int = ...,
            topics: list[OffsetCommit.OffsetCommitRequestTopic] = ...,
            group_instance_id: str | None = ...,
        ) -> None: ...

    class OffsetCommitResponsePartition(Struct):
        partition_index: int
        error_code: int
        def __init__(
            self,
            *,
            partition_index: int = ...,
            error_code: int = ...,
        ) -> None: ...

    class OffsetCommitResponseTopic(Struct):
        name: str
        partitions: list[OffsetCommit.OffsetCommitResponsePartition]
        topic_id: UUID
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: list[OffsetCommit.OffsetCommitResponsePartition] = ...,
            topic_id: UUID = ...,
        ) -> None: ...

    class Response(Struct):
        topics: list[OffsetCommit.OffsetCommitResponseTopic]
        throttle_time_ms: int
        def __init__(
            self,
            *,
            topics: list[OffsetCommit.OffsetCommitResponseTopic] = ...,
            throttle_time_ms: int = ...,
        ) -> None: ...

