# Rendered from Kafka's message schemas by `make docs`; do not edit.

from uuid import UUID

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class ConsumerGroupHeartbeat(Api):
    class RequestTopicPartitions(Struct):
        topic_id: UUID
        partitions: list[int]
        def __init__(
            self,
            *,
            topic_id: UUID = ...,
            partitions: list[int] = ...,
        ) -> None: ...

    class Request(Struct):
        group_id: str
        member_id: str
        member_epoch: int
        instance_id: str | None
        rack_id: str | None
        rebalance_timeout_ms: int
        subscribed_topic_names: list[str] | None
        server_assignor: str | None
        topic_partitions: list[ConsumerGroupHeartbeat.RequestTopicPartitions] | None
        subscribed_topic_regex: str | None
        def __init__(
            self,
            *,
            group_id: str = ...,
            member_id: str = ...,
            member_epoch: int = ...,
            instance_id: str | None = ...,
            rack_id: str | None = ...,
            rebalance_timeout_ms: int = ...,
            subscribed_topic_names: list[str] | None = ...,
            server_assignor: str | None = ...,
            topic_partitions: list[ConsumerGroupHeartbeat.RequestTopicPartitions] | None = ...,
            subscribed_topic_regex: str | None = ...,
        ) -> None: ...

    class TopicPartitions(Struct):
        topic_id: UUID
        partitions: list[int]
        def __init__(
            self,
            *,
            topic_id: UUID = ...,
            partitions: list[int] = ...,
        ) -> None: ...

    class Assignment(Struct):
        topic_partitions: list[ConsumerGroupHeartbeat.TopicPartitions]
        def __init__(
            self,
            *,
            topic_partitions: list[ConsumerGroupHeartbeat.TopicPartitions] = ...,
        ) -> None: ...

    class Response(Struct):
        throttle_time_ms: int
        error_code: int
        error_message: str | None
        member_id: str | None
        member_epoch: int
        heartbeat_interval_ms: int
        assignment: ConsumerGroupHeartbeat.Assignment | None
        def __init__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            member_id: str | None = ...,
            member_epoch: int = ...,
            heartbeat_interval_ms: int = ...,
            assignment: ConsumerGroupHeartbeat.Assignment | None = ...,
        ) -> None: ...

