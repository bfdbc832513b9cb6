# Rendered from Kafka's message schemas by `make docs`; do not edit.

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class DescribeProducers(Api):
    class TopicRequest(Struct):
        name: str
        partition_indexes: list[int]
        def __init__(
            self,
            *,
            name: str = ...,
            partition_indexes: list[int] = ...,
        ) -> None: ...

    class Request(Struct):
        topics: list[DescribeProducers.TopicRequest]
        def __init__(
            self,
            *,
            topics: list[DescribeProducers.TopicRequest] = ...,
        ) -> None: ...

    class ProducerState(Struct):
        producer_id: int
        producer_epoch: int
        last_sequence: int
        last_timestamp: int
        coordinator_epoch: int
        current_txn_start_offset: int
        def __init__(
            self,
            *,
            producer_id: int = ...,
            producer_epoch: int = ...,
            last_sequence: int = ...,
            last_timestamp: int = ...,
            coordinator_epoch: int = ...,
            current_txn_start_offset: int = ...,
        ) -> None: ...

    class PartitionResponse(Struct):
        partition_index: int
        error_code: int
        error_message: str | None
        active_producers: list[DescribeProducers.ProducerState]
        def __init__(
            self,
            *,
            partition_index: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            active_producers: list[DescribeProducers.ProducerState] = ...,
        ) -> None: ...

    class TopicResponse(Struct):
        name: str
        partitions: list[DescribeProducers.PartitionResponse]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: list[DescribeProducers.PartitionResponse] = ...,
        ) -> None: ...

    class Response(Struct):
        throttle_time_ms: int
        topics: list[DescribeProducers.TopicResponse]
        def __init__(
            self,
            *,
            throttle_time_ms: int = ...,
            topics: list[DescribeProducers.TopicResponse] = ...,
        ) -> None: ...

