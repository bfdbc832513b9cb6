# Rendered from Kafka's message schemas by `make docs`; do not edit.

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class DescribeClientQuotas(Api):
    class ComponentData(Struct):
        entity_type: str
        match_type: int
        match: str | None
        def __init__(
            self,
            *,
            entity_type: str = ...,
            match_type: int = ...,
            match: str | None = ...,
        ) -> None: ...

    class Request(Struct):
        components: list[DescribeClientQuotas.ComponentData]
        strict: bool
        def __init__(
            self,
            *,
            components: list[DescribeClientQuotas.ComponentData] = ...,
            strict: bool = ...,
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

    class ValueData(Struct):
        key: str
        value: float
        def __init__(
            self,
            *,
            key: str = ...,
            value: float = ...,
        ) -> None: ...

    class EntryData(Struct):
        entity: list[DescribeClientQuotas.EntityData]
        values: list[DescribeClientQuotas.ValueData]
        def __init__(
            self,
            *,
            entity: list[DescribeClientQuotas.EntityData] = ...,
            values: list[DescribeClientQuotas.ValueData] = ...,
        ) -> None: ...

    class Response(Struct):
        throttle_time_ms: int
        error_code: int
        error_message: str | None
        entries: list[DescribeClientQuotas.EntryData] | None
        def __init__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            entries: list[DescribeClientQuotas.EntryData] | None = ...,
        ) -> None: ...

