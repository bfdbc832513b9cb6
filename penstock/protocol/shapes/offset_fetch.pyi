# Rendered from Kafka's message schemas by `make docs`; do not edit.

from uuid import UUID

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class OffsetFetch(Api):
    class OffsetFetchRequestTopic(Struct):
        name: str
        partition_indexes: list[int]
        def __init__(
            self,
            *,
            name: str = ...,
            partition_indexes: list[int] = ...,
        ) -> None: ...

    class Request(Struct):
        group_id: str
        topics: list[OffsetFetch.OffsetFetchRequestTopic] | None
        require_stable: bool
        groups: list[OffsetFetch.OffsetFetchRequestGroup]
        def __init__(
            self,
            *,
            group_id: str = ...,
            topics: list[OffsetFetch.OffsetFetchRequestTopic] | None = ...,
            require_stable: bool = ...,
            groups: list[OffsetFetch.OffsetFetchRequestGroup] = ...,
        ) -> None: ...

    class OffsetFetchRequestTopics(Struct):
        name: str
        partition_indexes: list[int]
        topic_id: UUID
        def __init__(
            self,
            *,
            name: str = ...,
            partition_indexes: list[int] = ...,
            topic_id: UUID = ...,
        ) -> None: ...

    class OffsetFetchRequestGroup(Struct):
        group_id: str
        topics: list[OffsetFetch.OffsetFetchRequestTopics] | None
        member_id: str | None
        member_epoch: int
        def __init__(
            self,
            *,
            group_id: str = ...,
            topics: list[OffsetFetch.OffsetFetchRequestTopics] | None = ...,
            member_id: str | None = ...,
            member_epoch: int = ...,
        ) -> None: ...

    class OffsetFetchResponsePartition(Struct):
        partition_index: int
        committed_offset: int
        metadata: str | None
        error_code: int
        committed_leader_epoch: int
        def __init__(
            self,
            *,
            partition_index: int = ...,
            committed_offset: int = ...,
            metadata: str | None = ...,
            error_code: int = ...,
            committed_leader_epoch: int = ...,
        ) -> None: ...

    class OffsetFetchResponseTopic(Struct):
        name: str
        partitions: list[OffsetFetch.OffsetFetchResponsePartition]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: list[OffsetFetch.OffsetFetchResponsePartition] = ...,
        ) -> None: ...

    class Response(Struct):
        topics: list[OffsetFetch.OffsetFetchResponseTopic]
        error_code: int
        throttle_time_ms: int
        groups: list[OffsetFetch.OffsetFetchResponseGroup]
        def __init__(
            self,
            *,
            topics: list[OffsetFetch.OffsetFetchResponseTopic] = ...,
            error_code: int = ...,
            throttle_time_ms: int = ...,
            groups: list[OffsetFetch.OffsetFetchResponseGroup] = ...,
        ) -> None: ...

    class OffsetFetchResponsePartitions(Struct):
        partition_index: int
        committed_offset: int
        committed_leader_epoch: int
        metadata: str | None
        error_code: int
        def __init__(
            self,
            *,
            partition_index: int = ...,
            committed_offset: int = ...,
            committed_leader_epoch: int = ...,
            metadata: str | None = ...,
            error_code: int = ...,
        ) -> None: ...

    class OffsetFetchResponseTopics(Struct):
        name: str
        partitions: list[OffsetFetch.OffsetFetchResponsePartitions]
        topic_id: UUID
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: list[OffsetFetch.OffsetFetchResponsePartitions] = ...,
            topic_id: UUID = ...,
        ) -> None: ...

    class OffsetFetchResponseGroup(Struct):
        group_id: str
        topics: list[OffsetFetch.OffsetFetchResponseTopics]
        error_code: int
        def __init__(
            self,
            *,
            group_id: str = ...,
            topics: list[OffsetFetch.OffsetFetchResponseTopics] = ...,
            error_code: int = ...,
        ) -> None: ...

