# Rendered from Kafka's message schemas by `make docs`; do not edit.

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class AddOffsetsToTxn(Api):
    class Request(Struct):
        transactional_id: str
        producer_id: int
        producer_epoch: int
        group_id: str
        def __init__(
            self,
            *,
            transactional_id: str = ...,
            producer_id: int = ...,
            producer_epoch: int = ...,
            group_id: str = ...,
        ) -> None: ...

    class Response(Struct):
        throttle_time_ms: int
        error_code: int
        def __init__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
        ) -> None: ...

