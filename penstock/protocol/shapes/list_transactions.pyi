# Rendered from Kafka's message schemas by `make docs`; do not edit.

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class ListTransactions(Api):
    class Request(Struct):
        state_filters: list[str]
        producer_id_filters: list[int]
        duration_filter: int
        transactional_id_pattern: str | None
        def __init__(
            self,
            *,
            state_filters: list[str] = ...,
            producer_id_filters: list[int] = ...,
            duration_filter: int = ...,
            transactional_id_pattern: str | None = ...,
        ) -> None: ...

    class TransactionState(Struct):
        transactional_id: str
        producer_id: int
        transaction_state: str
        def __init__(
            self,
            *,
            transactional_id: str = ...,
            producer_id: int = ...,
            transaction_state: str = ...,
        ) -> None: ...

    class Response(Struct):
        throttle_time_ms: int
        error_code: int
        unknown_state_filters: list[str]
        transaction_states: list[ListTransactions.TransactionState]
        def __init__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            unknown_state_filters: list[str] = ...,
            transaction_states: list[ListTransactions.TransactionState] = ...,
        ) -> None: ...

