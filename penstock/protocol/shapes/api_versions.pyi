# Rendered from Kafka's message schemas by `make docs`; do not edit.

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class ApiVersions(Api):
    class Request(Struct):
        client_software_name: str
        client_software_version: str
        def __init__(
            self,
            *,
            client_software_name: str = ...,
            client_software_version: str = ...,
        ) -> None: ...

    class ApiVersion(Struct):
        api_key: int
        min_version: int
        max_version: int
        def __init__(
            self,
            *,
            api_key: int = ...,
            min_version: int = ...,
            max_version: int = ...,
        ) -> None: ...

    class Response(Struct):
        error_code: int
        api_keys: list[ApiVersions.ApiVersion]
        throttle_time_ms: int
        supported_features: list[ApiVersions.SupportedFeatureKey]
        finalized_features_epoch: int
        finalized_features: list[ApiVersions.FinalizedFeatureKey]
        zk_migration_ready: bool
        def __init__(
            self,
            *,
            error_code: int = ...,
            api_keys: list[ApiVersions.ApiVersion] = ...,
            throttle_time_ms: int = ...,
            supported_features: list[ApiVersions.SupportedFeatureKey] = ...,
            finalized_features_epoch: int = ...,
            finalized_features: list[ApiVersions.FinalizedFeatureKey] = ...,
            zk_migration_ready: bool = ...,
        ) -> None: ...

    class SupportedFeatureKey(Struct):
        name: str
        min_version: int
        max_version: int
        def __init__(
            self,
            *,
            name: str = ...,
            min_version: int = ...,
            max_version: int = ...,
        ) -> None: ...

    class FinalizedFeatureKey(Struct):
        name: str
        max_version_level: int
        min_version_level: int
        def __init__(
            self,
            *,
            name: str = ...,
            max_version_level: int = ...,
            min_version_level: int = ...,
        ) -> None: ...

