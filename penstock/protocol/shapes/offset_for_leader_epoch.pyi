# Rendered from Kafka's message schemas by `make docs`; do not edit.

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class OffsetForLeaderEpoch(Api):
    class OffsetForLeaderPartition(Struct):
        partition: int
        current_leader_epoch: int
        leader_epoch: int
        def __init__(
            self,
            *,
            partition: int = ...,
            current_leader_epoch: int = ...,
            leader_epoch: int = ...,
        ) -> None: ...

    class OffsetForLeaderTopic(Struct):
        topic: str
        partitions: list[OffsetForLeaderEpoch.OffsetForLeaderPartition]
        def __init__(
            self,
            *,
            topic: str = ...,
            partitions: list[OffsetForLeaderEpoch.OffsetForLeaderPartition] = ...,
        ) -> None: ...

    class Request(Struct):
        topics: list[OffsetForLeaderEpoch.OffsetForLeaderTopic]
        replica_id: int
        def __init__(
            self,
            *,
            topics: list[OffsetForLeaderEpoch.OffsetForLeaderTopic] = ...,
            replica_id: int = ...,
        ) -> None: ...

    class EpochEndOffset(Struct):
        error_code: int
        partition: int
        leader_epoch: int
        end_offset: int
        def __init__(
            self,
            *,
            error_code: int = ...,
            partition: int = ...,
            leader_epoch: int = ...,
            end_offset: int = ...,
        ) -> None: ...

    class OffsetForLeaderTopicResult(Struct):
        topic: str
        partitions: list[OffsetForLeaderEpoch.EpochEndOffset]
        def __init__(
            self,
            *,
            topic: str = ...,
            partitions: list[OffsetForLeaderEpoch.EpochEndOffset] = ...,
        ) -> None: ...

    class Response(Struct):
        throttle_time_ms: int
        topics: list[OffsetForLeaderEpoch.OffsetForLeaderTopicResult]
        def __init__(
            self,
            *,
            throttle_time_ms: int = ...,
            topics: list[OffsetForLeaderEpoch.OffsetForLeaderTopicResult] = ...,
        ) -> None: ...

