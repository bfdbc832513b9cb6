# Rendered from Kafka's message schemas by `make docs`; do not edit.

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class SyncGroup(Api):
    class SyncGroupRequestAssignment(Struct):
        member_id: str
        assignment: bytes
        def __init__(
            self,
            *,
            member_id: str = ...,
            assignment: bytes = ...,
        ) -> None: ...

    class Request(Struct):
        group_id: str
        generation_id: int
        member_id: str
        assignments: list[SyncGroup.SyncGroupRequestAssignment]
        group_instance_id: str | None
        protocol_type: str | None
        protocol_name: str | None
        def __init__(
            self,
            *,
            group_id: str = ...,
            generation_id: int = ...,
            member_id: str = ...,
            assignments: list[SyncGroup.SyncGroupRequestAssignment] = ...,
            group_instance_id: str | None = ...,
            protocol_type: str | None = ...,
            protocol_name: str | None = ...,
        ) -> None: ...

    class Response(Struct):
        error_code: int
        assignment: bytes
        throttle_time_ms: int
        protocol_type: str | None
        protocol_name: str | None
        def __init__(
            self,
            *,
            error_code: int = ...,
            assignment: bytes = ...,
            throttle_time_ms: int = ...,
            protocol_type: str | None = ...,
            protocol_name: str | None = ...,
        ) -> None: ...

