# Rendered from Kafka's message schemas by `make docs`; do not edit.

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class IncrementalAlterConfigs(Api):
    class AlterableConfig(Struct):
        name: str
        config_operation: int
        value: str | None
        def __init__(
            self,
            *,
            name: str = ...,
            config_operation: int = ...,
            value: str | None = ...,
        ) -> None: ...

    class AlterConfigsResource(Struct):
        resource_type: int
        resource_name: str
        configs: list[IncrementalAlterConfigs.AlterableConfig]
        def __init__(
            self,
            *,
            resource_type: int = ...,
            resource_name: str = ...,
            configs: list[IncrementalAlterConfigs.AlterableConfig] = ...,
        ) -> None: ...

    class Request(Struct):
        resources: list[IncrementalAlterConfigs.AlterConfigsResource]
        validate_only: bool
        def __init__(
            self,
            *,
            resources: list[IncrementalAlterConfigs.AlterConfigsResource] = ...,
            validate_only: bool = ...,
        ) -> None: ...

    class AlterConfigsResourceResponse(Struct):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        def __init__(
            self,
            *,
            error_code: int = ...,
            error_message: str | None = ...,
            resource_type: int = ...,
            resource_name: str = ...,
        ) -> None: ...

    class Response(Struct):
        throttle_time_ms: int
        responses: list[IncrementalAlterConfigs.AlterConfigsResourceResponse]
        def __init__(
            self,
            *,
            throttle_time_ms: int = ...,
            responses: list[IncrementalAlterConfigs.AlterConfigsResourceResponse] = ...,
        ) -> None: ...

