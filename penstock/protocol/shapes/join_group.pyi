# Rendered from Kafka's message schemas by `make docs`; do not edit.

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class JoinGroup(Api):
    class JoinGroupRequestProtocol(Struct):
        name: str
        metadata: bytes
        def __init__(
            self,
            *,
            name: str = ...,
            metadata: bytes = ...,
        ) -> None: ...

    class Request(Struct):
        group_id: str
        session_timeout_ms: int
        member_id: str
        protocol_type: str
        protocols: list[JoinGroup.JoinGroupRequestProtocol]
        rebalance_timeout_ms: int
        group_instance_id: str | None
        reason: str | None
        def __init__(
            self,
            *,
            group_id: str = ...,
            session_timeout_ms: int = ...,
            member_id: str = ...,
            protocol_type: str = ...,
            protocols: list[JoinGroup.JoinGroupRequestProtocol] = ...,
            rebalance_timeout_ms: int = ...,
            group_instance_id: str | None = ...,
            reason: str | None = ...,
        ) -> None: ...

    class JoinGroupResponseMember(Struct):
        member_id: str
        metadata: bytes
        group_instance_id: str | None
        def __init__(
            self,
            *,
            member_id: str = ...,
            metadata: bytes = ...,
            group_instance_id: str | None = ...,
        ) -> None: ...

    class Response(Struct):
        error_code: int
        generation_id: int
        protocol_name: str | None
        leader: str
        member_id: str
        members: list[JoinGroup.JoinGroupResponseMember]
        throttle_time_ms: int
        protocol_type: str | None
        skip_assignment: bool
        def __init__(
            self,
            *,
            error_code: int = ...,
            generation_id: int = ...,
            protocol_name: str | None = ...,
            leader: str = ...,
            member_id: str = ...,
            members: list[JoinGroup.JoinGroupResponseMember] = ...,
            throttle_time_ms: int = ...,
            protocol_type: str | None = ...,
            skip_assignment: bool = ...,
        ) -> None: ...

