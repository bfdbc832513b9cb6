# Rendered from Kafka's message schemas by `make docs`; do not edit.

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class AlterReplicaLogDirs(Api):
    class AlterReplicaLogDirTopic(Struct):
        name: str
        partitions: list[int]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: list[int] = ...,
        ) -> None: ...

    class AlterReplicaLogDir(Struct):
        path: str
        topics: list[AlterReplicaLogDirs.AlterReplicaLogDirTopic]
        def __init__(
            self,
            *,
            path: str = ...,
            topics: list[AlterReplicaLogDirs.AlterReplicaLogDirTopic] = ...,
        ) -> None: ...

    class Request(Struct):
        dirs: list[AlterReplicaLogDirs.AlterReplicaLogDir]
        def __init__(
            self,
            *,
            dirs: list[AlterReplicaLogDirs.AlterReplicaLogDir] = ...,
        ) -> None: ...

    class AlterReplicaLogDirPartitionResult(Struct):
        partition_index: int
        error_code: int
        def __init__(
            self,
            *,
            partition_index: int = ...,
            error_code: int = ...,
        ) -> None: ...

    class AlterReplicaLogDirTopicResult(Struct):
        topic_name: str
        partitions: list[AlterReplicaLogDirs.AlterReplicaLogDirPartitionResult]
        def __init__(
            self,
            *,
            topic_name: str = ...,
            partitions: list[AlterReplicaLogDirs.AlterReplicaLogDirPartitionResult] = ...,
        ) -> None: ...

    class Response(Struct):
        throttle_time_ms: int
        results: list[AlterReplicaLogDirs.AlterReplicaLogDirTopicResult]
        def __init__(
            self,
            *,
            throttle_time_ms: int = ...,
            results: list[AlterReplicaLogDirs.AlterReplicaLogDirTopicResult] = ...,
        ) -> None: ...

