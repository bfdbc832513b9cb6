# Rendered from Kafka's message schemas by `make docs`; do not edit.

from uuid import UUID

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class AlterPartition(Api):
    class RequestPartitionData(Struct):
        partition_index: int
        leader_epoch: int
        new_isr: list[int]
        leader_recovery_state: int
        partition_epoch: int
        new_isr_with_epochs: list[AlterPartition.BrokerState]
        def __init__(
            self,
            *,
            partition_index: int = ...,
            leader_epoch: int = ...,
            new_isr: list[int] = ...,
            leader_recovery_state: int = ...,
            partition_epoch: int = ...,
            new_isr_with_epochs: list[AlterPartition.BrokerState] = ...,
        ) -> None: ...

    class RequestTopicData(Struct):
        topic_id: UUID
        partitions: list[AlterPartition.RequestPartitionData]
        def __init__(
            self,
            *,
            topic_id: UUID = ...,
            partitions: list[AlterPartition.RequestPartitionData] = ...,
        ) -> None: ...

    class Request(Struct):
        broker_id: int
        broker_epoch: int
        topics: list[AlterPartition.RequestTopicData]
        def __init__(
            self,
            *,
            broker_id: int = ...,
            broker_epoch: int = ...,
            topics: list[AlterPartition.RequestTopicData] = ...,
        ) -> None: ...

    class BrokerState(Struct):
        broker_id: int
        broker_epoch: int
        def __init__(
            self,
            *,
            broker_id: int = ...,
            broker_epoch: int = ...,
        ) -> None: ...

    class PartitionData(Struct):
        partition_index: int
        error_code: int
        leader_id: int
        leader_epoch: int
        isr: list[int]
        leader_recovery_state: int
        partition_epoch: int
        def __init__(
            self,
            *,
            partition_index: int = ...,
            error_code: int = ...,
            leader_id: int = ...,
            leader_epoch: int = ...,
            isr: list[int] = ...,
            leader_recovery_state: int = ...,
            partition_epoch: int = ...,
        ) -> None: ...

    class TopicData(Struct):
        topic_id: UUID
        partitions: list[AlterPartition.PartitionData]
        def __init__(
            self,
            *,
            topic_id: UUID = ...,
            partitions: list[AlterPartition.PartitionData] = ...,
        ) -> None: ...

    class Response(Struct):
        throttle_time_ms: int
        error_code: int
        topics: list[AlterPartition.TopicData]
        def __init__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            topics: list[AlterPartition.TopicData] = ...,
        ) -> None: ...

