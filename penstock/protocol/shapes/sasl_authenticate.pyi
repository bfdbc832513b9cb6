# Rendered from Kafka's message schemas by `make docs`; do not edit.

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class SaslAuthenticate(Api):
    class Request(Struct):
        auth_bytes: bytes
        def __init__(
            self,
            *,
            auth_bytes: bytes = ...,
        ) -> None: ...

    class Response(Struct):
        error_code: int
        error_message: str | None
        auth_bytes: bytes
        session_lifetime_ms: int
        def __init__(
            self,
            *,
            error_code: int = ...,
            error_message: str | None = ...,
            auth_bytes: bytes = ...,
            session_lifetime_ms: int = ...,
        ) -> None: ...

