# Rendered from Kafka's message schemas by `make docs`; do not edit.

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class ExpireDelegationToken(Api):
    class Request(Struct):
        hmac: bytes
        expiry_time_period_ms: int
        def __init__(
            self,
            *,
            hmac: bytes = ...,
            expiry_time_period_ms: int = ...,
        ) -> None: ...

    class Response(Struct):
        error_code: int
        expiry_timestamp: int
        throttle_time_ms: int
        def __init__(
            self,
            *,
            error_code: int = ...,
            expiry_timestamp: int = ...,
            throttle_time_ms: int = ...,
        ) -> None: ...

