# Rendered from Kafka's message schemas by `make docs`; do not edit.

from uuid import UUID

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class DescribeTopicPartitions(Api):
    class TopicRequest(Struct):
        name: str
        def __init__(
            self,
            *,
            name: str = ...,
        ) -> None: ...

    class RequestCursor(Struct):
        topic_name: str
        partition_index: int
        def __init__(
            self,
            *,
            topic_name: str = ...,
            partition_index: int = ...,
        ) -> None: ...

    class Request(Struct):
        topics: list[DescribeTopicPartitions.TopicRequest]
        response_partition_limit: int
        cursor: DescribeTopicPartitions.RequestCursor | None
        def __init__(
            self,
            *,
            topics: list[DescribeTopicPartitions.TopicRequest] = ...,
            response_partition_limit: int = ...,
            cursor: DescribeTopicPartitions.RequestCursor | None = ...,
        ) -> None: ...

    class DescribeTopicPartitionsResponsePartition(Struct):
        error_code: int
        partition_index: int
        leader_id: int
        leader_epoch: int
        replica_nodes: list[int]
        isr_nodes: list[int]
        eligible_leader_replicas: list[int] | None
        last_known_elr: list[int] | None
        offline_replicas: list[int]
        def __init__(
            self,
            *,
            error_code: int = ...,
            partition_index: int = ...,
            leader_id: int = ...,
            leader_epoch: int = ...,
            replica_nodes: list[int] = ...,
            isr_nodes: list[int] = ...,
            eligible_leader_replicas: list[int] | None = ...,
            last_known_elr: list[int] | None = ...,
            offline_replicas: list[int] = ...,
        ) -> None: ...

    class DescribeTopicPartitionsResponseTopic(Struct):
        error_code: int
        name: str | None
        topic_id: UUID
        is_internal: bool
        partitions: list[DescribeTopicPartitions.DescribeTopicPartitionsResponsePartition]
        topic_authorized_operations: int
        def __init__(
            self,
            *,
            error_code: int = ...,
            name: str | None = ...,
            topic_id: UUID = ...,
            is_internal: bool = ...,
            partitions: list[DescribeTopicPartitions.DescribeTopicPartitionsResponsePartition] = ...,
            topic_authorized_operations: int = ...,
        ) -> None: ...

    class Cursor(Struct):
        topic_name: str
        partition_index: int
        def __init__(
            self,
            *,
            topic_name: str = ...,
            partition_index: int = ...,
        ) -> None: ...

    class Response(Struct):
        throttle_time_ms: int
        topics: list[DescribeTopicPartitions.DescribeTopicPartitionsResponseTopic]
        next_cursor: DescribeTopicPartitions.Cursor | None
        def __init__(
            self,
            *,
            throttle_time_ms: int = ...,
            topics: list[DescribeTopicPartitions.DescribeTopicPartitionsResponseTopic] = ...,
            next_cursor: DescribeTopicPartitions.Cursor | None = ...,
        ) -> None: ...

