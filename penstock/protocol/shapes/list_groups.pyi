# Rendered from Kafka's message schemas by `make docs`; do not edit.

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class ListGroups(Api):
    class Request(Struct):
        states_filter: list[str]
        types_filter: list[str]
        def __init__(
            self,
            *,
            states_filter: list[str] = ...,
            types_filter: list[str] = ...,
        ) -> None: ...

    class ListedGroup(Struct):
        group_id: str
        protocol_type: str
        group_state: str
        group_type: str
        def __init__(
            self,
            *,
            group_id: str = ...,
            protocol_type: str = ...,
            group_state: str = ...,
            group_type: str = ...,
        ) -> None: ...

    class Response(Struct):
        error_code: int
        groups: list[ListGroups.ListedGroup]
        throttle_time_ms: int
        def __init__(
            self,
            *,
            error_code: int = ...,
            groups: list[ListGroups.ListedGroup] = ...,
            throttle_time_ms: int = ...,
        ) -> None: ...

