# Rendered from Kafka's message schemas by `make docs`; do not edit.

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class SaslHandshake(Api):
    class Request(Struct):
        mechanism: str
        def __init__(
            self,
            *,
            mechanism: str = ...,
        ) -> None: ...

    class Response(Struct):
        error_code: int
        mechanisms: list[str]
        def __init__(
            self,
            *,
            error_code: int = ...,
            mechanisms: list[str] = ...,
        ) -> None: ...

