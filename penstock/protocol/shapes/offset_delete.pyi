# Rendered from Kafka's message schemas by `make docs`; do not edit.

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class OffsetDelete(Api):
    class OffsetDeleteRequestPartition(Struct):
        partition_index: int
        def __init__(
            self,
            *,
            partition_index: int = ...,
        ) -> None: ...

    class OffsetDeleteRequestTopic(Struct):
        name: str
        partitions: list[OffsetDelete.OffsetDeleteRequestPartition]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: list[OffsetDelete.OffsetDeleteRequestPartition] = ...,
        ) -> None: ...

    class Request(Struct):
        group_id: str
        topics: list[OffsetDelete.OffsetDeleteRequestTopic]
        def __init__(
            self,
            *,
            group_id: str = ...,
            topics: list[OffsetDelete.OffsetDeleteRequestTopic] = ...,
        ) -> None: ...

    class OffsetDeleteResponsePartition(Struct):
        partition_index: int
        error_code: int
        def __init__(
            self,
            *,
            partition_index: int = ...,
            error_code: int = ...,
        ) -> None: ...

    class OffsetDeleteResponseTopic(Struct):
        name: str
        partitions: list[OffsetDelete.OffsetDeleteResponsePartition]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: list[OffsetDelete.OffsetDeleteResponsePartition] = ...,
        ) -> None: ...

    class Response(Struct):
        error_code: int
        throttle_time_ms: int
        topics: list[OffsetDelete.OffsetDeleteResponseTopic]
        def __init__(
            self,
            *,
            error_code: int = ...,
            throttle_time_ms: int = ...,
            topics: list[OffsetDelete.OffsetDeleteResponseTopic] = ...,
        ) -> None: ...

