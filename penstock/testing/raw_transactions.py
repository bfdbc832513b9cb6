"""A transactional producer by hand: every request in the version that the test wants, nothing hidden."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from penstock.client.errors import KafkaError
from penstock.client.sync import SyncClient
from penstock.protocol import messages
from penstock.protocol.batch import build_batch, read_records
from penstock.protocol.committed_batches import committed_batches
from penstock.protocol.errors import ErrorCode
from penstock.protocol.records import Record, new_record

CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS


def until(condition: Callable[[], Any], what: str, seconds: float = 120.0) -> Any:
    """Poll until the condition gives something true."""
    deadline = time.monotonic() + seconds
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"did not happen within {seconds} s: {what}")
        time.sleep(0.01)


class RawProducer:
    """One incarnation. `implicit` speaks transaction.version 2 (Produce v12, EndTxn v5), else version 1's way."""

    def __init__(self, client: SyncClient, transactional_id: str, *, implicit: bool = True, **init: Any) -> None:
        self.client = client
        self.transactional_id = transactional_id
        self.implicit = implicit
        self.sequences: dict[tuple[str, int], int] = {}
        response = initialize(client, transactional_id, **init)
        assert response.error_code == 0, ErrorCode(response.error_code).name
        self.producer_id, self.epoch = response.producer_id, response.producer_epoch
        self.ongoing = (response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch)

    @property
    def pair(self) -> tuple[int, int]:
        return self.producer_id, self.epoch

    def add(self, *partitions: tuple[str, int]) -> dict[tuple[str, int], int]:
        api = messages.api("add_partitions_to_txn").load_all_versions()
        request = api.Request(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[api.AddPartitionsToTxnTopic(name=t, partitions=[p]) for t, p in partitions],
        )
        response = self.client.call_coordinator(
            "transaction", self.transactional_id, "add_partitions_to_txn", request, highest_version=3
        )
        return {
            (topic.name, result.partition_index): result.partition_error_code
            for topic in response.results_by_topic_v3_and_below
            for result in topic.results_by_partition
        }

    def send(self, topic: str, partition: int, *values: str) -> int:
        """The error code."""
        sequence = self.sequences.get((topic, partition), 0)
        batch = build_batch(
            [new_record(None, value.encode(), int(time.time() * 1000)) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        try:
            self.client.produce(
                topic,
                partition,
                batch,
                transactional_id=self.transactional_id,
                implicit_partitions=self.implicit,
            )
        except KafkaError as error:
            return error.code
        self.sequences[(topic, partition)] = sequence + len(values)
        return 0

    def end(self, commit: bool) -> int:
        response = end(self.client, self.transactional_id, self.pair, commit, 5 if self.implicit else 4)
        if response.error_code == 0 and self.implicit:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            self.sequences.clear()
        return int(response.error_code)


def initialize(client: SyncClient, transactional_id: str, timeout_ms: int = 60_000, **fields: Any) -> Any:
    version = fields.pop("version", None)
    request = messages.api("init_producer_id").Request(
        transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, **fields
    )

    def ask() -> Any:
        answer = client.call_coordinator("transaction", transactional_id, "init_producer_id", request, version=version)
        return None if answer.error_code == CONCURRENT else answer

    return until(ask, f"InitProducerId of {transactional_id}")


def end(client: SyncClient, transactional_id: str, pair: tuple[int, int], commit: bool, version: int = 5) -> Any:
    request = messages.api("end_txn").Request(
        transactional_id=transactional_id, producer_id=pair[0], producer_epoch=pair[1], committed=commit
    )

    def ask() -> Any:
        answer = client.call_coordinator("transaction", transactional_id, "end_txn", request, version=version)
        return None if answer.error_code == CONCURRENT else answer

    return until(ask, f"EndTxn of {transactional_id}")


def records(client: SyncClient, topic: str, partition: int = 0, *, read_committed: bool = True) -> list[Record]:
    """What a consumer of that isolation sees from the start; aborted records and markers are filtered as clients do."""
    key = (topic, partition)
    seen: list[Record] = []
    offset = 0
    while True:
        answer = client.fetch({key: offset}, read_committed=read_committed, max_wait_ms=0)[key]
        assert answer.error_code == 0, ErrorCode(answer.error_code).name
        next_offset = offset
        aborted = answer.aborted_transactions if read_committed else ()
        for header, shown in committed_batches(answer.records, aborted):
            next_offset = header.next_offset
            if shown:
                seen += [record for record in read_records(answer.records, header) if record.offset >= offset]
        if next_offset == offset:
            return seen
        offset = next_offset


def values(client: SyncClient, topic: str, partition: int = 0, *, read_committed: bool = True) -> list[str]:
    found = records(client, topic, partition, read_committed=read_committed)
    return [(record.value or b"").decode() for record in found]


def listed(client: SyncClient, **filters: Any) -> dict[str, str]:
    """Transactional id → state."""
    response = client.call_any("list_transactions", messages.api("list_transactions").Request(**filters))
    assert response.error_code == 0, ErrorCode(response.error_code).name
    return {entry.transactional_id: entry.transaction_state for entry in response.transaction_states}


def described(client: SyncClient, transactional_id: str) -> Any:
    request = messages.api("describe_transactions").Request(transactional_ids=[transactional_id])
    return client.call_coordinator(
        "transaction", transactional_id, "describe_transactions", request
    ).transaction_states[0]


def create_topic(client: SyncClient, name: str, partitions: int = 1) -> None:
    api = messages.api("create_topics")
    response = client.call_controller(
        "create_topics",
        api.Request(
            topics=[api.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)], timeout_ms=30_000
        ),
    )
    assert response.topics[0].error_code == 0, response.topics[0].error_message
