# Rendered from Kafka's message schemas by `make docs`; do not edit.

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class ListPartitionReassignments(Api):
    class ListPartitionReassignmentsTopics(Struct):
        name: str
        partition_indexes: list[int]
        def __init__(
            self,
            *,
            name: str = ...,
            partition_indexes: list[int] = ...,
        ) -> None: ...

    class Request(Struct):
        timeout_ms: int
        topics: list[ListPartitionReassignments.ListPartitionReassignmentsTopics] | None
        def __init__(
            self,
            *,
            timeout_ms: int = ...,
            topics: list[ListPartitionReassignments.ListPartitionReassignmentsTopics] | None = ...,
        ) -> None: ...

    class OngoingPartitionReassignment(Struct):
        partition_index: int
        replicas: list[int]
        adding_replicas: list[int]
        removing_replicas: list[int]
        def __init__(
            self,
            *,
            partition_index: int = ...,
            replicas: list[int] = ...,
            adding_replicas: list[int] = ...,
            removing_replicas: list[int] = ...,
        ) -> None: ...

    class OngoingTopicReassignment(Struct):
        name: str
        partitions: list[ListPartitionReassignments.OngoingPartitionReassignment]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: list[ListPartitionReassignments.OngoingPartitionReassignment] = ...,
        ) -> None: ...

    class Response(Struct):
        throttle_time_ms: int
        error_code: int
        error_message: str | None
        topics: list[ListPartitionReassignments.OngoingTopicReassignment]
        def __init__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            topics: list[ListPartitionReassignments.OngoingTopicReassignment] = ...,
        ) -> None: ...

