# Rendered from Kafka's message schemas by `make docs`; do not edit.

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class CreatePartitions(Api):
    class CreatePartitionsAssignment(Struct):
        broker_ids: list[int]
        def __init__(
            self,
            *,
            broker_ids: list[int] = ...,
        ) -> None: ...

    class CreatePartitionsTopic(Struct):
        name: str
        count: int
        assignments: list[CreatePartitions.CreatePartitionsAssignment] | None
        def __init__(
            self,
            *,
            name: str = ...,
            count: int = ...,
            assignments: list[CreatePartitions.CreatePartitionsAssignment] | None = ...,
        ) -> None: ...

    class Request(Struct):
        topics: list[CreatePartitions.CreatePartitionsTopic]
        timeout_ms: int
        validate_only: bool
        def __init__(
            self,
            *,
            topics: list[CreatePartitions.CreatePartitionsTopic] = ...,
            timeout_ms: int = ...,
            validate_only: bool = ...,
        ) -> None: ...

    class CreatePartitionsTopicResult(Struct):
        name: str
        error_code: int
        error_message: str | None
        def __init__(
            self,
            *,
            name: str = ...,
            error_code: int = ...,
            error_message: str | None = ...,
        ) -> None: ...

    class Response(Struct):
        throttle_time_ms: int
        results: list[CreatePartitions.CreatePartitionsTopicResult]
        def __init__(
            self,
            *,
            throttle_time_ms: int = ...,
            results: list[CreatePartitions.CreatePartitionsTopicResult] = ...,
        ) -> None: ...

