# Rendered from Kafka's message schemas by `make docs`; do not edit.

from penstock.protocol.message_compiler import Struct
from penstock.protocol.shapes.base import Api

class AddPartitionsToTxn(Api):
    class AddPartitionsToTxnTopic(Struct):
        name: str
        partitions: list[int]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: list[int] = ...,
        ) -> None: ...

    class Request(Struct):
        v3_and_below_transactional_id: str
        v3_and_below_producer_id: int
        v3_and_below_producer_epoch: int
        v3_and_below_topics: list[AddPartitionsToTxn.AddPartitionsToTxnTopic]
        transactions: list[AddPartitionsToTxn.AddPartitionsToTxnTransaction]
        def __init__(
            self,
            *,
            v3_and_below_transactional_id: str = ...,
            v3_and_below_producer_id: int = ...,
            v3_and_below_producer_epoch: int = ...,
            v3_and_below_topics: list[AddPartitionsToTxn.AddPartitionsToTxnTopic] = ...,
            transactions: list[AddPartitionsToTxn.AddPartitionsToTxnTransaction] = ...,
        ) -> None: ...

    class AddPartitionsToTxnTransaction(Struct):
        transactional_id: str
        producer_id: int
        producer_epoch: int
        verify_only: bool
        topics: list[AddPartitionsToTxn.AddPartitionsToTxnTopic]
        def __init__(
            self,
            *,
            transactional_id: str = ...,
            producer_id: int = ...,
            producer_epoch: int = ...,
            verify_only: bool = ...,
            topics: list[AddPartitionsToTxn.AddPartitionsToTxnTopic] = ...,
        ) -> None: ...

    class AddPartitionsToTxnPartitionResult(Struct):
        partition_index: int
        partition_error_code: int
        def __init__(
            self,
            *,
            partition_index: int = ...,
            partition_error_code: int = ...,
        ) -> None: ...

    class AddPartitionsToTxnTopicResult(Struct):
        name: str
        results_by_partition: list[AddPartitionsToTxn.AddPartitionsToTxnPartitionResult]
        def __init__(
            self,
            *,
            name: str = ...,
            results_by_partition: list[AddPartitionsToTxn.AddPartitionsToTxnPartitionResult] = ...,
        ) -> None: ...

    class Response(Struct):
        throttle_time_ms: int
        results_by_topic_v3_and_below: list[AddPartitionsToTxn.AddPartitionsToTxnTopicResult]
        error_code: int
        results_by_transaction: list[AddPartitionsToTxn.AddPartitionsToTxnResult]
        def __init__(
            self,
            *,
            throttle_time_ms: int = ...,
            results_by_topic_v3_and_below: list[AddPartitionsToTxn.AddPartitionsToTxnTopicResult] = ...,
            error_code: int = ...,
            results_by_transaction: list[AddPartitionsToTxn.AddPartitionsToTxnResult] = ...,
        ) -> None: ...

    class AddPartitionsToTxnResult(Struct):
        transactional_id: str
        topic_results: list[AddPartitionsToTxn.AddPartitionsToTxnTopicResult]
        def __init__(
            self,
            *,
            transactional_id: str = ...,
            topic_results: list[AddPartitionsToTxn.AddPartitionsToTxnTopicResult] = ...,
        ) -> None: ...

