# Rendered from Kafka's message schemas by `make docs`; do not edit.

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class AlterUserScramCredentials(Api):
    class ScramCredentialDeletion(Struct):
        name: str
        mechanism: int
        def __init__(
            self,
            *,
            name: str = ...,
            mechanism: int = ...,
        ) -> None: ...

    class ScramCredentialUpsertion(Struct):
        name: str
        mechanism: int
        iterations: int
        salt: bytes
        salted_password: bytes
        def __init__(
            self,
            *,
            name: str = ...,
            mechanism: int = ...,
            iterations: int = ...,
            salt: bytes = ...,
            salted_password: bytes = ...,
        ) -> None: ...

    class Request(Struct):
        deletions: list[AlterUserScramCredentials.ScramCredentialDeletion]
        upsertions: list[AlterUserScramCredentials.ScramCredentialUpsertion]
        def __init__(
            self,
            *,
            deletions: list[AlterUserScramCredentials.ScramCredentialDeletion] = ...,
            upsertions: list[AlterUserScramCredentials.ScramCredentialUpsertion] = ...,
        ) -> None: ...

    class AlterUserScramCredentialsResult(Struct):
        user: str
        error_code: int
        error_message: str | None
        def __init__(
            self,
            *,
            user: str = ...,
            error_code: int = ...,
            error_message: str | None = ...,
        ) -> None: ...

    class Response(Struct):
        throttle_time_ms: int
        results: list[AlterUserScramCredentials.AlterUserScramCredentialsResult]
        def __init__(
            self,
            *,
            throttle_time_ms: int = ...,
            results: list[AlterUserScramCredentials.AlterUserScramCredentialsResult] = ...,
        ) -> None: ...

