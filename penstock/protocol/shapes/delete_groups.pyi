# Rendered from Kafka's message schemas by `make docs`; do not edit.

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class DeleteGroups(Api):
    class Request(Struct):
        groups_names: list[str]
        def __init__(
            self,
            *,
            groups_names: list[str] = ...,
        ) -> None: ...

    class DeletableGroupResult(Struct):
        group_id: str
        error_code: int
        def __init__(
            self,
            *,
            group_id: str = ...,
            error_code: int = ...,
        ) -> None: ...

    class Response(Struct):
        throttle_time_ms: int
        results: list[DeleteGroups.DeletableGroupResult]
        def __init__(
            self,
            *,
            throttle_time_ms: int = ...,
            results: list[DeleteGroups.DeletableGroupResult] = ...,
        ) -> None: ...

