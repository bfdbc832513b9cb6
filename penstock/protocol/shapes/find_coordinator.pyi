# Rendered from Kafka's message schemas by `make docs`; do not edit.

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class FindCoordinator(Api):
    class Request(Struct):
        key: str
        key_type: int
        coordinator_keys: list[str]
        def __init__(
            self,
            *,
            key: str = ...,
            key_type: int = ...,
            coordinator_keys: list[str] = ...,
        ) -> None: ...

    class Response(Struct):
        error_code: int
        node_id: int
        host: str
        port: int
        throttle_time_ms: int
        error_message: str | None
        coordinators: list[FindCoordinator.Coordinator]
        def __init__(
            self,
            *,
            error_code: int = ...,
            node_id: int = ...,
            host: str = ...,
            port: int = ...,
            throttle_time_ms: int = ...,
            error_message: str | None = ...,
            coordinators: list[FindCoordinator.Coordinator] = ...,
        ) -> None: ...

    class Coordinator(Struct):
        key: str
        node_id: int
        host: str
        port: int
        error_code: int
        error_message: str | None
        def __init__(
            self,
            *,
            key: str = ...,
            node_id: int = ...,
            host: str = ...,
            port: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
        ) -> None: ...

