# Rendered from Kafka's message schemas by `make docs`; do not edit.

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class CreateDelegationToken(Api):
    class CreatableRenewers(Struct):
        principal_type: str
        principal_name: str
        def __init__(
            self,
            *,
            principal_type: str = ...,
            principal_name: str = ...,
        ) -> None: ...

    class Request(Struct):
        renewers: list[CreateDelegationToken.CreatableRenewers]
        max_lifetime_ms: int
        owner_principal_type: str | None
        owner_principal_name: str | None
        def __init__(
            self,
            *,
            renewers: list[CreateDelegationToken.CreatableRenewers] = ...,
            max_lifetime_ms: int = ...,
            owner_principal_type: str | None = ...,
            owner_principal_name: str | None = ...,
        ) -> None: ...

    class Response(Struct):
        error_code: int
        principal_type: str
        principal_name: str
        issue_timestamp: int
        expiry_timestamp: int
        max_timestamp: int
        token_id: str
        hmac: bytes
        throttle_time_ms: int
        token_requester_principal_type: str
        token_requester_principal_name: str
        def __init__(
            self,
            *,
            error_code: int = ...,
            principal_type: str = ...,
            principal_name: str = ...,
            issue_timestamp: int = ...,
            expiry_timestamp: int = ...,
            max_timestamp: int = ...,
            token_id: str = ...,
            hmac: bytes = ...,
            throttle_time_ms: int = ...,
            token_requester_principal_type: str = ...,
            token_requester_principal_name: str = ...,
        ) -> None: ...

