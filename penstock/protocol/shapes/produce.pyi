# Rendered from Kafka's message schemas by `make docs`; do not edit.

from uuid import UUID

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class Produce(Api):
    class PartitionProduceData(Struct):
        index: int
        records: bytes | None
        def __init__(
            self,
            *,
            index: int = ...,
            records: bytes | None = ...,
        ) -> None: ...

    class TopicProduceData(Struct):
        name: str
        partition_data: list[Produce.PartitionProduceData]
        topic_id: UUID
        def __init__(
            self,
            *,
            name: str = ...,
            partition_data: list[Produce.PartitionProduceData] = ...,
            topic_id: UUID = ...,
        ) -> None: ...

    class Request(Struct):
        transactional_id: str | None
        acks: int
        timeout_ms: int
        topic_data: list[Produce.TopicProduceData]
        def __init__(
            self,
            *,
            transactional_id: str | None = ...,
            acks: int = ...,
            timeout_ms: int = ...,
            topic_data: list[Produce.TopicProduceData] = ...,
        ) -> None: ...

    class PartitionProduceResponse(Struct):
        index: int
        error_code: int
        base_offset: int
        log_append_time_ms: int
        log_start_offset: int
        record_errors: list[Produce.BatchIndexAndErrorMessage]
        error_message: str | None
        current_leader: Produce.LeaderIdAndEpoch
        def __init__(
            self,
            *,
            index: int = ...,
            error_code: int = ...,
            base_offset: int = ...,
            log_append_time_ms: int = ...,
            log_start_offset: int = ...,
            record_errors: list[Produce.BatchIndexAndErrorMessage] = ...,
            error_message: str | None = ...,
            current_leader: Produce.LeaderIdAndEpoch = ...,
        ) -> None: ...

    class TopicProduceResponse(Struct):
        name: str
        partition_responses: list[Produce.PartitionProduceResponse]
        topic_id: UUID
        def __init__(
            self,
            *,
            name: str = ...,
            partition_responses: list[Produce.PartitionProduceResponse] = ...,
            topic_id: UUID = ...,
        ) -> None: ...

    class Response(Struct):
        responses: list[Produce.TopicProduceResponse]
        throttle_time_ms: int
        node_endpoints: list[Produce.NodeEndpoint]
        def __init__(
            self,
            *,
            responses: list[Produce.TopicProduceResponse] = ...,
            throttle_time_ms: int = ...,
            node_endpoints: list[Produce.NodeEndpoint] = ...,
        ) -> None: ...

    class BatchIndexAndErrorMessage(Struct):
        batch_index: int
        batch_index_error_message: str | None
        def __init__(
            self,
            *,
            batch_index: int = ...,
            batch_index_error_message: str | None = ...,
        ) -> None: ...

    class LeaderIdAndEpoch(Struct):
        leader_id: int
        leader_epoch: int
        def __init__(
            self,
            *,
            leader_id: int = ...,
            leader_epoch: int = ...,
        ) -> None: ...

    class NodeEndpoint(Struct):
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

