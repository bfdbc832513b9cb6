# Rendered from Kafka's message schemas by `make docs`; do not edit.

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class DescribeDelegationToken(Api):
    class DescribeDelegationTokenOwner(Struct):
        principal_type: str
        principal_name: str
        def __init__(
            self,
            *,
            principal_type: str = ...,
            principal_name: str = ...,
        ) -> None: ...

    class Request(Struct):
        owners: list[DescribeDelegationToken.DescribeDelegationTokenOwner] | None
        def __init__(
            self,
            *,
            owners: list[DescribeDelegationToken.DescribeDelegationTokenOwner] | None = ...,
        ) -> None: ...

    class DescribedDelegationTokenRenewer(Struct):
        principal_type: str
        principal_name: str
        def __init__(
            self,
            *,
            principal_type: str = ...,
            principal_name: str = ...,
        ) -> None: ...

    class DescribedDelegationToken(Struct):
        principal_type: str
        principal_name: str
        issue_timestamp: int
        expiry_timestamp: int
        max_timestamp: int
        token_id: str
        hmac: bytes
        renewers: list[DescribeDelegationToken.DescribedDelegationTokenRenewer]
        token_requester_principal_type: str
        token_requester_principal_name: str
        def __init__(
            self,
            *,
            principal_type: str = ...,
            principal_name: str = ...,
            issue_timestamp: int = ...,
            expiry_timestamp: int = ...,
            max_timestamp: int = ...,
            token_id: str = ...,
            hmac: bytes = ...,
            renewers: list[DescribeDelegationToken.DescribedDelegationTokenRenewer] = ...,
            token_requester_principal_type: str = ...,
            token_requester_principal_name: str = ...,
        ) -> None: ...

    class Response(Struct):
        error_code: int
        tokens: list[DescribeDelegationToken.DescribedDelegationToken]
        throttle_time_ms: int
        def __init__(
            self,
            *,
            error_code: int = ...,
            tokens: list[DescribeDelegationToken.DescribedDelegationToken] = ...,
            throttle_time_ms: int = ...,
        ) -> None: ...

