# Rendered from Kafka's message schemas by `make docs`; do not edit.

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class DescribeTransactions(Api):
    class Request(Struct):
        transactional_ids: list[str]
        def __init__(
            self,
            *,
            transactional_ids: list[str] = ...,
        ) -> None: ...

    class TopicData(Struct):
        topic: str
        partitions: list[int]
        def __init__(
            self,
            *,
            topic: str = ...,
            partitions: list[int] = ...,
        ) -> None: ...

    class TransactionState(Struct):
        error_code: int
        transactional_id: str
        transaction_state: str
        transaction_timeout_ms: int
        transaction_start_time_ms: int
        producer_id: int
        producer_epoch: int
        topics: list[DescribeTransactions.TopicData]
        def __init__(
            self,
            *,
            error_code: int = ...,
            transactional_id: str = ...,
            transaction_state: str = ...,
            transaction_timeout_ms: int = ...,
            transaction_start_time_ms: int = ...,
            producer_id: int = ...,
            producer_epoch: int = ...,
            topics: list[DescribeTransactions.TopicData] = ...,
        ) -> None: ...

    class Response(Struct):
        throttle_time_ms: int
        transaction_states: list[DescribeTransactions.TransactionState]
        def __init__(
            self,
            *,
            throttle_time_ms: int = ...,
            transaction_states: list[DescribeTransactions.TransactionState] = ...,
        ) -> None: ...

