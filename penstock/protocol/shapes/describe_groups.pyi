# Rendered from Kafka's message schemas by `make docs`; do not edit.

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class DescribeGroups(Api):
    class Request(Struct):
        groups: list[str]
        include_authorized_operations: bool
        def __init__(
            self,
            *,
            groups: list[str] = ...,
            include_authorized_operations: bool = ...,
        ) -> None: ...

    class DescribedGroupMember(Struct):
        member_id: str
        client_id: str
        client_host: str
        member_metadata: bytes
        member_assignment: bytes
        group_instance_id: str | None
        def __init__(
            self,
            *,
            member_id: str = ...,
            client_id: str = ...,
            client_host: str = ...,
            member_metadata: bytes = ...,
            member_assignment: bytes = ...,
            group_instance_id: str | None = ...,
        ) -> None: ...

    class DescribedGroup(Struct):
        error_code: int
        group_id: str
        group_state: str
        protocol_type: str
        protocol_data: str
        members: list[DescribeGroups.DescribedGroupMember]
        authorized_operations: int
        error_message: str | None
        def __init__(
            self,
            *,
            error_code: int = ...,
            group_id: str = ...,
            group_state: str = ...,
            protocol_type: str = ...,
            protocol_data: str = ...,
            members: list[DescribeGroups.DescribedGroupMember] = ...,
            authorized_operations: int = ...,
            error_message: str | None = ...,
        ) -> None: ...

    class Response(Struct):
        groups: list[DescribeGroups.DescribedGroup]
        throttle_time_ms: int
        def __init__(
            self,
            *,
            groups: list[DescribeGroups.DescribedGroup] = ...,
            throttle_time_ms: int = ...,
        ) -> None: ...

