# Rendered from Kafka's message schemas by `make docs`; do not edit.

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class ElectLeaders(Api):
    class TopicPartitions(Struct):
        topic: str
        partitions: list[int]
        def __init__(
            self,
            *,
            topic: str = ...,
            partitions: list[int] = ...,
        ) -> None: ...

    class Request(Struct):
        topic_partitions: list[ElectLeaders.TopicPartitions] | None
        timeout_ms: int
        election_type: int
        def __init__(
            self,
            *,
            topic_partitions: list[ElectLeaders.TopicPartitions] | None = ...,
            timeout_ms: int = ...,
            election_type: int = ...,
        ) -> None: ...

    class PartitionResult(Struct):
        partition_id: int
        error_code: int
        error_message: str | None
        def __init__(
            self,
            *,
            partition_id: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
        ) -> None: ...

    class ReplicaElectionResult(Struct):
        topic: str
        partition_result: list[ElectLeaders.PartitionResult]
        def __init__(
            self,
            *,
            topic: str = ...,
            partition_result: list[ElectLeaders.PartitionResult] = ...,
        ) -> None: ...

    class Response(Struct):
        throttle_time_ms: int
        replica_election_results: list[ElectLeaders.ReplicaElectionResult]
        error_code: int
        def __init__(
            self,
            *,
            throttle_time_ms: int = ...,
            replica_election_results: list[ElectLeaders.ReplicaElectionResult] = ...,
            error_code: int = ...,
        ) -> None: ...

