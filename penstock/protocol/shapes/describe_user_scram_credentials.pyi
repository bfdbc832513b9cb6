# Rendered from Kafka's message schemas by `make docs`; do not edit.

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class DescribeUserScramCredentials(Api):
    class UserName(Struct):
        name: str
        def __init__(
            self,
            *,
            name: str = ...,
        ) -> None: ...

    class Request(Struct):
        users: list[DescribeUserScramCredentials.UserName] | None
        def __init__(
            self,
            *,
            users: list[DescribeUserScramCredentials.UserName] | None = ...,
        ) -> None: ...

    class CredentialInfo(Struct):
        mechanism: int
        iterations: int
        def __init__(
            self,
            *,
            mechanism: int = ...,
            iterations: int = ...,
        ) -> None: ...

    class DescribeUserScramCredentialsResult(Struct):
        user: str
        error_code: int
        error_message: str | None
        credential_infos: list[DescribeUserScramCredentials.CredentialInfo]
        def __init__(
            self,
            *,
            user: str = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            credential_infos: list[DescribeUserScramCredentials.CredentialInfo] = ...,
        ) -> None: ...

    class Response(Struct):
        throttle_time_ms: int
        error_code: int
        error_message: str | None
        results: list[DescribeUserScramCredentials.DescribeUserScramCredentialsResult]
        def __init__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            results: list[DescribeUserScramCredentials.DescribeUserScramCredentialsResult] = ...,
        ) -> None: ...

