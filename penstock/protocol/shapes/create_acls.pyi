# Rendered from Kafka's message schemas by `make docs`; do not edit.

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class CreateAcls(Api):
    class AclCreation(Struct):
        resource_type: int
        resource_name: str
        resource_pattern_type: int
        principal: str
        host: str
        operation: int
        permission_type: int
        def __init__(
            self,
            *,
            resource_type: int = ...,
            resource_name: str = ...,
            resource_pattern_type: int = ...,
            principal: str = ...,
            host: str = ...,
            operation: int = ...,
            permission_type: int = ...,
        ) -> None: ...

    class Request(Struct):
        creations: list[CreateAcls.AclCreation]
        def __init__(
            self,
            *,
            creations: list[CreateAcls.AclCreation] = ...,
        ) -> None: ...

    class AclCreationResult(Struct):
        error_code: int
        error_message: str | None
        def __init__(
            self,
            *,
            error_code: int = ...,
            error_message: str | None = ...,
        ) -> None: ...

    class Response(Struct):
        throttle_time_ms: int
        results: list[CreateAcls.AclCreationResult]
        def __init__(
            self,
            *,
            throttle_time_ms: int = ...,
            results: list[CreateAcls.AclCreationResult] = ...,
        ) -> None: ...

