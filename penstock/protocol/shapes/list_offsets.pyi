# Rendered from Kafka's message schemas by `make docs`; do not edit.

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class ListOffsets(Api):
    class ListOffsetsPartition(Struct):
        partition_index: int
        timestamp: int
        current_leader_epoch: int
        def __init__(
            self,
            *,
            partition_index: int = ...,
            timestamp: int = ...,
            current_leader_epoch: int = ...,
        ) -> None: ...

    class ListOffsetsTopic(Struct):
        name: str
        partitions: list[ListOffsets.ListOffsetsPartition]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: list[ListOffsets.ListOffsetsPartition] = ...,
        ) -> None: ...

    class Request(Struct):
        replica_id: int
        topics: list[ListOffsets.ListOffsetsTopic]
        isolation_level: int
        timeout_ms: int
        def __init__(
            self,
            *,
            replica_id: int = ...,
            topics: list[ListOffsets.ListOffsetsTopic] = ...,
            isolation_level: int = ...,
            timeout_ms: int = ...,
        ) -> None: ...

    class ListOffsetsPartitionResponse(Struct):
        partition_index: int
        error_code: int
        timestamp: int
        offset: int
        leader_epoch: int
        def __init__(
            self,
            *,
            partition_index: int = ...,
            error_code: int = ...,
            timestamp: int = ...,
            offset: int = ...,
            leader_epoch: int = ...,
        ) -> None: ...

    class ListOffsetsTopicResponse(Struct):
        name: str
        partitions: list[ListOffsets.ListOffsetsPartitionResponse]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: list[ListOffsets.ListOffsetsPartitionResponse] = ...,
        ) -> None: ...

    class Response(Struct):
        topics: list[ListOffsets.ListOffsetsTopicResponse]
        throttle_time_ms: int
        def __init__(
            self,
            *,
            topics: list[ListOffsets.ListOffsetsTopicResponse] = ...,
            throttle_time_ms: int = ...,
        ) -> None: ...

