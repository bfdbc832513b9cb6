# Rendered from Kafka's message schemas by `make docs`; do not edit.

from uuid import UUID

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class DeleteTopics(Api):
    class Request(Struct):
        topic_names: list[str]
        timeout_ms: int
        topics: list[DeleteTopics.DeleteTopicState]
        def __init__(
            self,
            *,
            topic_names: list[str] = ...,
            timeout_ms: int = ...,
            topics: list[DeleteTopics.DeleteTopicState] = ...,
        ) -> None: ...

    class DeleteTopicState(Struct):
        name: str | None
        topic_id: UUID
        def __init__(
            self,
            *,
            name: str | None = ...,
            topic_id: UUID = ...,
        ) -> None: ...

    class DeletableTopicResult(Struct):
        name: str | None
        error_code: int
        error_message: str | None
        topic_id: UUID
        def __init__(
            self,
            *,
            name: str | None = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            topic_id: UUID = ...,
        ) -> None: ...

    class Response(Struct):
        throttle_time_ms: int
        responses: list[DeleteTopics.DeletableTopicResult]
        def __init__(
            self,
            *,
            throttle_time_ms: int = ...,
            responses: list[DeleteTopics.DeletableTopicResult] = ...,
        ) -> None: ...

