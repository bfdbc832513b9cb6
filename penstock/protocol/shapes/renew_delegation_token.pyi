# Rendered from Kafka's message schemas by `make docs`; do not edit.

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class RenewDelegationToken(Api):
    class Request(Struct):
        hmac: bytes
        renew_period_ms: int
        def __init__(
            self,
            *,
            hmac: bytes = ...,
            renew_period_ms: int = ...,
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

