# Rendered from Kafka's message schemas by `make docs`; do not edit.

from uuid import UUID

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class CreateTopics(Api):
    class CreatableReplicaAssignment(Struct):
        partition_index: int
        broker_ids: list[int]
        def __init__(
            self,
            *,
            partition_index: int = ...,
            broker_ids: list[int] = ...,
        ) -> None: ...

    class CreatableTopicConfig(Struct):
        name: str
        value: str | None
        def __init__(
            self,
            *,
            name: str = ...,
            value: str | None = ...,
        ) -> None: ...

    class CreatableTopic(Struct):
        name: str
        num_partitions: int
        replication_factor: int
        assignments: list[CreateTopics.CreatableReplicaAssignment]
        configs: list[CreateTopics.CreatableTopicConfig]
        def __init__(
            self,
            *,
            name: str = ...,
            num_partitions: int = ...,
            replication_factor: int = ...,
            assignments: list[CreateTopics.CreatableReplicaAssignment] = ...,
            configs: list[CreateTopics.CreatableTopicConfig] = ...,
        ) -> None: ...

    class Request(Struct):
        topics: list[CreateTopics.CreatableTopic]
        timeout_ms: int
        validate_only: bool
        def __init__(
            self,
            *,
            topics: list[CreateTopics.CreatableTopic] = ...,
            timeout_ms: int = ...,
            validate_only: bool = ...,
        ) -> None: ...

    class CreatableTopicResult(Struct):
        name: str
        error_code: int
        error_message: str | None
        topic_config_error_code: int
        num_partitions: int
        replication_factor: int
        configs: list[CreateTopics.CreatableTopicConfigs] | None
        topic_id: UUID
        def __init__(
            self,
            *,
            name: str = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            topic_config_error_code: int = ...,
            num_partitions: int = ...,
            replication_factor: int = ...,
            configs: list[CreateTopics.CreatableTopicConfigs] | None = ...,
            topic_id: UUID = ...,
        ) -> None: ...

    class Response(Struct):
        throttle_time_ms: int
        topics: list[CreateTopics.CreatableTopicResult]
        def __init__(
            self,
            *,
            throttle_time_ms: int = ...,
            topics: list[CreateTopics.CreatableTopicResult] = ...,
        ) -> None: ...

    class CreatableTopicConfigs(Struct):
        name: str
        value: str | None
        read_only: bool
        config_source: int
        is_sensitive: bool
        def __init__(
            self,
            *,
            name: str = ...,
            value: str | None = ...,
            read_only: bool = ...,
            config_source: int = ...,
            is_sensitive: bool = ...,
        ) -> None: ...

