# Rendered from Kafka's message schemas by `make docs`; do not edit.

from uuid import UUID

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class Metadata(Api):
    class MetadataRequestTopic(Struct):
        name: str | None
        topic_id: UUID
        def __init__(
            self,
            *,
            name: str | None = ...,
            topic_id: UUID = ...,
        ) -> None: ...

    class Request(Struct):
        topics: list[Metadata.MetadataRequestTopic] | None
        allow_auto_topic_creation: bool
        include_cluster_authorized_operations: bool
        include_topic_authorized_operations: bool
        def __init__(
            self,
            *,
            topics: list[Metadata.MetadataRequestTopic] | None = ...,
            allow_auto_topic_creation: bool = ...,
            include_cluster_authorized_operations: bool = ...,
            include_topic_authorized_operations: bool = ...,
        ) -> None: ...

    class MetadataResponseBroker(Struct):
        node_id: int
        host: str
        port: int
        rack: str | None
        def __init__(
            self,
            *,
            node_id: int = ...,
            host: str = ...,
            port: int = ...,
            rack: str | None = ...,
        ) -> None: ...

    class MetadataResponsePartition(Struct):
        error_code: int
        partition_index: int
        leader_id: int
        replica_nodes: list[int]
        isr_nodes: list[int]
        offline_replicas: list[int]
        leader_epoch: int
        def __init__(
            self,
            *,
            error_code: int = ...,
            partition_index: int = ...,
            leader_id: int = ...,
            replica_nodes: list[int] = ...,
            isr_nodes: list[int] = ...,
            offline_replicas: list[int] = ...,
            leader_epoch: int = ...,
        ) -> None: ...

    class MetadataResponseTopic(Struct):
        error_code: int
        name: str | None
        partitions: list[Metadata.MetadataResponsePartition]
        is_internal: bool
        topic_authorized_operations: int
        topic_id: UUID
        def __init__(
            self,
            *,
            error_code: int = ...,
            name: str | None = ...,
            partitions: list[Metadata.MetadataResponsePartition] = ...,
            is_internal: bool = ...,
            topic_authorized_operations: int = ...,
            topic_id: UUID = ...,
        ) -> None: ...

    class Response(Struct):
        brokers: list[Metadata.MetadataResponseBroker]
        topics: list[Metadata.MetadataResponseTopic]
        controller_id: int
        cluster_id: str | None
        throttle_time_ms: int
        cluster_authorized_operations: int
        error_code: int
        def __init__(
            self,
            *,
            brokers: list[Metadata.MetadataResponseBroker] = ...,
            topics: list[Metadata.MetadataResponseTopic] = ...,
            controller_id: int = ...,
            cluster_id: str | None = ...,
            throttle_time_ms: int = ...,
            cluster_authorized_operations: int = ...,
            error_code: int = ...,
        ) -> None: ...

