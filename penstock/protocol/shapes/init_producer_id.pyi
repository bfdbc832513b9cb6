# Rendered from Kafka's message schemas by `make docs`; do not edit.

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class InitProducerId(Api):
    class Request(Struct):
        transactional_id: str | None
        transaction_timeout_ms: int
        producer_id: int
        producer_epoch: int
        enable2_pc: bool
        keep_prepared_txn: bool
        def __init__(
            self,
            *,
            transactional_id: str | None = ...,
            transaction_timeout_ms: int = ...,
            producer_id: int = ...,
            producer_epoch: int = ...,
            enable2_pc: bool = ...,
            keep_prepared_txn: bool = ...,
        ) -> None: ...

    class Response(Struct):
        throttle_time_ms: int
        error_code: int
        producer_id: int
        producer_epoch: int
        ongoing_txn_producer_id: int
        ongoing_txn_producer_epoch: int
        def __init__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            producer_id: int = ...,
            producer_epoch: int = ...,
            ongoing_txn_producer_id: int = ...,
            ongoing_txn_producer_epoch: int = ...,
        ) -> None: ...

