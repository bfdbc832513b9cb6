# Rendered from Kafka's message schemas by `make docs`; do not edit.

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class DescribeCluster(Api):
    class Request(Struct):
        include_cluster_authorized_operations: bool
        endpoint_type: int
        include_fenced_brokers: bool
        def __init__(
            self,
            *,
            include_cluster_authorized_operations: bool = ...,
            endpoint_type: int = ...,
            include_fenced_brokers: bool = ...,
        ) -> None: ...

    class DescribeClusterBroker(Struct):
        broker_id: int
        host: str
        port: int
        rack: str | None
        is_fenced: bool
        def __init__(
            self,
            *,
            broker_id: int = ...,
            host: str = ...,
            port: int = ...,
            rack: str | None = ...,
            is_fenced: bool = ...,
        ) -> None: ...

    class Response(Struct):
        throttle_time_ms: int
        error_code: int
        error_message: str | None
        cluster_id: str
        controller_id: int
        brokers: list[DescribeCluster.DescribeClusterBroker]
        cluster_authorized_operations: int
        endpoint_type: int
        def __init__(
            self,
            *,
            throttle_time_ms: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            cluster_id: str = ...,
            controller_id: int = ...,
            brokers: list[DescribeCluster.DescribeClusterBroker] = ...,
            cluster_authorized_operations: int = ...,
            endpoint_type: int = ...,
        ) -> None: ...

