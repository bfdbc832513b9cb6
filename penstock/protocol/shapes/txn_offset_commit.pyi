# Rendered from Kafka's message schemas by `make docs`; do not edit.

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class TxnOffsetCommit(Api):
    class TxnOffsetCommitRequestPartition(Struct):
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

    class TxnOffsetCommitRequestTopic(Struct):
        name: str
        partitions: list[TxnOffsetCommit.TxnOffsetCommitRequestPartition]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: list[TxnOffsetCommit.TxnOffsetCommitRequestPartition] = ...,
        ) -> None: ...

    class Request(Struct):
        transactional_id: str
        group_id: str
        producer_id: int
        producer_epoch: int
        topics: list[TxnOffsetCommit.TxnOffsetCommitRequestTopic]
        generation_id: int
        member_id: str
        group_instance_id: str | None
        def __init__(
            self,
            *,
            transactional_id: str = ...,
            group_id: str = ...,
            producer_id: int = ...,
            producer_epoch: int = ...,
            topics: list[TxnOffsetCommit.TxnOffsetCommitRequestTopic] = ...,
            generation_id: int = ...,
            member_id: str = ...,
            group_instance_id: str | None = ...,
        ) -> None: ...

    class TxnOffsetCommitResponsePartition(Struct):
        partition_index: int
        error_code: int
        def __init__(
            self,
            *,
            partition_index: int = ...,
            error_code: int = ...,
        ) -> None: ...

    class TxnOffsetCommitResponseTopic(Struct):
        name: str
        partitions: list[TxnOffsetCommit.TxnOffsetCommitResponsePartition]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: list[TxnOffsetCommit.TxnOffsetCommitResponsePartition] = ...,
        ) -> None: ...

    class Response(Struct):
        throttle_time_ms: int
        topics: list[TxnOffsetCommit.TxnOffsetCommitResponseTopic]
        def __init__(
            self,
            *,
            throttle_time_ms: int = ...,
            topics: list[TxnOffsetCommit.TxnOffsetCommitResponseTopic] = ...,
        ) -> None: ...

