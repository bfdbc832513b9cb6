# Rendered from Kafka's message schemas by `make docs`; do not edit.

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class DeleteRecords(Api):
    class DeleteRecordsPartition(Struct):
        partition_index: int
        offset: int
        def __init__(
            self,
            *,
            partition_index: int = ...,
            offset: int = ...,
        ) -> None: ...

    class DeleteRecordsTopic(Struct):
        name: str
        partitions: list[DeleteRecords.DeleteRecordsPartition]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: list[DeleteRecords.DeleteRecordsPartition] = ...,
        ) -> None: ...

    class Request(Struct):
        topics: list[DeleteRecords.DeleteRecordsTopic]
        timeout_ms: int
        def __init__(
            self,
            *,
            topics: list[DeleteRecords.DeleteRecordsTopic] = ...,
            timeout_ms: int = ...,
        ) -> None: ...

    class DeleteRecordsPartitionResult(Struct):
        partition_index: int
        low_watermark: int
        error_code: int
        def __init__(
            self,
            *,
            partition_index: int = ...,
            low_watermark: int = ...,
            error_code: int = ...,
        ) -> None: ...

    class DeleteRecordsTopicResult(Struct):
        name: str
        partitions: list[DeleteRecords.DeleteRecordsPartitionResult]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: list[DeleteRecords.DeleteRecordsPartitionResult] = ...,
        ) -> None: ...

    class Response(Struct):
        throttle_time_ms: int
        topics: list[DeleteRecords.DeleteRecordsTopicResult]
        def __init__(
            self,
            *,
            throttle_time_ms: int = ...,
            topics: list[DeleteRecords.DeleteRecordsTopicResult] = ...,
        ) -> None: ...

