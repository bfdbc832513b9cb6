# Rendered from Kafka's message schemas by `make docs`; do not edit.

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class Heartbeat(Api):
    class Request(Struct):
        group_id: str
        generation_id: int
        member_id: str
        group_instance_id: str | None
        def __init__(
            self,
            *,
            group_id: str = ...,
            generation_id: int = ...,
            member_id: str = ...,
            group_instance_id: str | None = ...,
        ) -> None: ...

    class Response(Struct):
        error_code: int
        throttle_time_ms: int
        def __init__(
            self,
            *,
            error_code: int = ...,
            throttle_time_ms: int = ...,
        ) -> None: ...

