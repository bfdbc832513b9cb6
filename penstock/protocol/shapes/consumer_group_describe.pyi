# Rendered from Kafka's message schemas by `make docs`; do not edit.

from uuid import UUID

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class ConsumerGroupDescribe(Api):
    class Request(Struct):
        group_ids: list[str]
        include_authorized_operations: bool
        def __init__(
            self,
            *,
            group_ids: list[str] = ...,
            include_authorized_operations: bool = ...,
        ) -> None: ...

    class TopicPartitions(Struct):
        topic_id: UUID
        topic_name: str
        partitions: list[int]
        def __init__(
            self,
            *,
            topic_id: UUID = ...,
            topic_name: str = ...,
            partitions: list[int] = ...,
        ) -> None: ...

    class Assignment(Struct):
        topic_partitions: list[ConsumerGroupDescribe.TopicPartitions]
        def __init__(
            self,
            *,
            topic_partitions: list[ConsumerGroupDescribe.TopicPartitions] = ...,
        ) -> None: ...

    class Member(Struct):
        member_id: str
        instance_id: str | None
        rack_id: str | None
        member_epoch: int
        client_id: str
        client_host: str
        subscribed_topic_names: list[str]
        subscribed_topic_regex: str | None
        assignment: ConsumerGroupDescribe.Assignment
        target_assignment: ConsumerGroupDescribe.Assignment
        member_type: int
        def __init__(
            self,
            *,
            member_id: str = ...,
            instance_id: str | None = ...,
            rack_id: str | None = ...,
            member_epoch: int = ...,
            client_id: str = ...,
            client_host: str = ...,
            subscribed_topic_names: list[str] = ...,
            subscribed_topic_regex: str | None = ...,
            assignment: ConsumerGroupDescribe.Assignment = ...,
            target_assignment: ConsumerGroupDescribe.Assignment = ...,
            member_type: int = ...,
        ) -> None: ...

    class DescribedGroup(Struct):
        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        group_epoch: int
        assignment_epoch: int
        assignor_name: str
        members: list[ConsumerGroupDescribe.Member]
        authorized_operations: int
        def __init__(
            self,
            *,
            error_code: int = ...,
            error_message: str | None = ...,
            group_id: str = ...,
            group_state: str = ...,
            group_epoch: int = ...,
            assignment_epoch: int = ...,
            assignor_name: str = ...,
            members: list[ConsumerGroupDescribe.Member] = ...,
            authorized_operations: int = ...,
        ) -> None: ...

    class Response(Struct):
        throttle_time_ms: int
        groups: list[ConsumerGroupDescribe.DescribedGroup]
        def __init__(
            self,
            *,
            throttle_time_ms: int = ...,
            groups: list[ConsumerGroupDescribe.DescribedGroup] = ...,
        ) -> None: ...

