# Rendered from Kafka's message schemas by `make docs`; do not edit.

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class AlterClientQuotas(Api):
    class RequestEntityData(Struct):
        entity_type: str
        entity_name: str | None
        def __init__(
            self,
            *,
            entity_type: str = ...,
            entity_name: str | None = ...,
        ) -> None: ...

    class OpData(Struct):
        key: str
        value: float
        remove: bool
        def __init__(
            self,
            *,
            key: str = ...,
            value: float = ...,
            remove: bool = ...,
        ) -> None: ...

    class RequestEntryData(Struct):
        entity: list[AlterClientQuotas.RequestEntityData]
        ops: list[AlterClientQuotas.OpData]
        def __init__(
            self,
            *,
            entity: list[AlterClientQuotas.RequestEntityData] = ...,
            ops: list[AlterClientQuotas.OpData] = ...,
        ) -> None: ...

    class Request(Struct):
        entries: list[AlterClientQuotas.RequestEntryData]
        validate_only: bool
        def __init__(
            self,
            *,
            entries: list[AlterClientQuotas.RequestEntryData] = ...,
            validate_only: bool = ...,
        ) -> None: ...

    class EntityData(Struct):
        entity_type: str
        entity_name: str | None
        def __init__(
            self,
            *,
            entity_type: str = ...,
            entity_name: str | None = ...,
        ) -> None: ...

    class EntryData(Struct):
        error_code: int
        error_message: str | None
        entity: list[AlterClientQuotas.EntityData]
        def __init__(
            self,
            *,
            error_code: int = ...,
            error_message: str | None = ...,
            entity: list[AlterClientQuotas.EntityData] = ...,
        ) -> None: ...

    class Response(Struct):
        throttle_time_ms: int
        entries: list[AlterClientQuotas.EntryData]
        def __init__(
            self,
            *,
            throttle_time_ms: int = ...,
            entries: list[AlterClientQuotas.EntryData] = ...,
        ) -> None: ...

