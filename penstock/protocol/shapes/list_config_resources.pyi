# Rendered from Kafka's message schemas by `make docs`; do not edit.

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class ListConfigResources(Api):
    class Request(Struct):
        resource_types: list[int]
        def __init__(
            self,
            *,
            resource_types: list[int] = ...,
        ) -> None: ...

    class ConfigResource(Struct):
        resource_name: str
        resource_type: int
        def __init__(
            self,
            *,
            resource_name: str = ...,
            resource_type: int = ...,
        ) -> None: ...

    class Response(Struct):
        throttle_time_ms: int
        error_code: int
        config_resources: list[ListConfigResources.ConfigResource]
        def __init__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            config_resources: list[ListConfigResources.ConfigResource] = ...,
        ) -> None: ...

