# Rendered from Kafka's message schemas by `make docs`; do not edit.

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class AlterPartitionReassignments(Api):
    class ReassignablePartition(Struct):
        partition_index: int
        replicas: list[int] | None
        def __init__(
            self,
            *,
            partition_index: int = ...,
            replicas: list[int] | None = ...,
        ) -> None: ...

    class ReassignableTopic(Struct):
        name: str
        partitions: list[AlterPartitionReassignments.ReassignablePartition]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: list[AlterPartitionReassignments.ReassignablePartition] = ...,
        ) -> None: ...

    class Request(Struct):
        timeout_ms: int
        topics: list[AlterPartitionReassignments.ReassignableTopic]
        allow_replication_factor_change: bool
        def __init__(
            self,
            *,
            timeout_ms: int = ...,
            topics: list[AlterPartitionReassignments.ReassignableTopic] = ...,
            allow_replication_factor_change: bool = ...,
        ) -> None: ...

    class ReassignablePartitionResponse(Struct):
        partition_index: int
        error_code: int
        error_message: str | None
        def __init__(
            self,
            *,
            partition_index: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
        ) -> None: ...

    class ReassignableTopicResponse(Struct):
        name: str
        partitions: list[AlterPartitionReassignments.ReassignablePartitionResponse]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: list[AlterPartitionReassignments.ReassignablePartitionResponse] = ...,
        ) -> None: ...

    class Response(Struct):
        throttle_time_ms: int
        error_code: int
        error_message: str | None
        responses: list[AlterPartitionReassignments.ReassignableTopicResponse]
        allow_replication_factor_change: bool
        def __init__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            responses: list[AlterPartitionReassignments.ReassignableTopicResponse] = ...,
            allow_replication_factor_change: bool = ...,
        ) -> None: ...

