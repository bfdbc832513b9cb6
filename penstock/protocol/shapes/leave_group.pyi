# Rendered from Kafka's message schemas by `make docs`; do not edit.

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class LeaveGroup(Api):
    class Request(Struct):
        group_id: str
        member_id: str
        members: list[LeaveGroup.MemberIdentity]
        def __init__(
            self,
            *,
            group_id: str = ...,
            member_id: str = ...,
            members: list[LeaveGroup.MemberIdentity] = ...,
        ) -> None: ...

    class MemberIdentity(Struct):
        member_id: str
        group_instance_id: str | None
        reason: str | None
        def __init__(
            self,
            *,
            member_id: str = ...,
            group_instance_id: str | None = ...,
            reason: str | None = ...,
        ) -> None: ...

    class Response(Struct):
        error_code: int
        throttle_time_ms: int
        members: list[LeaveGroup.MemberResponse]
        def __init__(
            self,
            *,
            error_code: int = ...,
            throttle_time_ms: int = ...,
            members: list[LeaveGroup.MemberResponse] = ...,
        ) -> None: ...

    class MemberResponse(Struct):
        member_id: str
        group_instance_id: str | None
        error_code: int
        def __init__(
            self,
            *,
            member_id: str = ...,
            group_instance_id: str | None = ...,
            error_code: int = ...,
        ) -> None: ...

