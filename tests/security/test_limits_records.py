"""Batches of few bytes and millions of records: only their sender waits, and the answer stays small."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
from raw_client import RawClient, batch, ensure_topic, produce_request

import penstock
from penstock.protocol import messages
from penstock.protocol.codecs import Codec, decompress
from penstock.protocol.errors import ErrorCode as E
from penstock.testing.hostile_batches import bomb, dense_payload, sealed
from penstock.testing.loop_watch import LoopWatch

STALL_SECONDS = 0.5
"""Far above what is promised (0.02), far below what each of these once took (2 to 12)."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Any]:
    with penstock.Broker(num_partitions=1, settings={"auto.create.topics.enable": "true"}) as running:
        ensure_topic(running.port, "plain")
        api = messages.api("create_topics").load_all_versions()
        compact = api.CreatableTopicConfig if hasattr(api, "CreatableTopicConfig") else api.CreateableTopicConfig
        wanted = api.CreatableTopic(
            name="compacted",
            num_partitions=1,
            replication_factor=1,
            assignments=[],
            configs=[compact(name="cleanup.policy", value="compact")],
        )
        with RawClient(running.port) as client:
            answer = client.call("create_topics", 5, api.Request(topics=[wanted], timeout_ms=10_000))
            assert answer.topics[0].error_code == 0
        warm_up(running)
        yield running


def produced(broker: Any, topic: str, records: bytes) -> Any:
    with RawClient(broker.port, timeout=120) as client:
        answer = client.call("produce", 9, produce_request(topic, records, acks=1))
        return answer.responses[0].partition_responses[0]


def warm_up(broker: Any) -> None:
    """What is imported at the first request is no stall of the attack."""
    assert produced(broker, "plain", batch(b"v")).error_code == 0
    assert produced(broker, "compacted", batch(b"v", key=b"k")).error_code == 0
    assert produced(broker, "compacted", sealed(dense_payload(2000), 2000)).error_code == 0


def test_very_many_records_for_a_compacted_topic_are_opened_elsewhere(broker: Any) -> None:
    many = sealed(dense_payload(200_000), 200_000)
    with LoopWatch(broker) as watch:
        answer = produced(broker, "compacted", many)
    assert answer.error_code == E.NONE
    assert watch.longest_seconds < STALL_SECONDS


def test_two_hundred_thousand_keyless_records_are_refused_with_a_short_list(broker: Any) -> None:
    keyless = sealed(dense_payload(200_000, key=None), 200_000)
    with LoopWatch(broker) as watch:
        answer = produced(broker, "compacted", keyless)
    assert answer.error_code == E.INVALID_RECORD
    assert len(answer.record_errors) == 1000
    assert "200000 record errors in total" in answer.error_message
    assert watch.longest_seconds < STALL_SECONDS


@pytest.mark.parametrize("said", [200_000, 1000], ids=["honest", "lying-counter"])
def test_times_out_of_range_do_not_open_a_large_batch(broker: Any, said: int) -> None:
    tomorrow = int(time.time() * 1000) + 86_400_000
    late = sealed(dense_payload(200_000), said, timestamp=tomorrow)
    with LoopWatch(broker) as watch:
        answer = produced(broker, "plain", late)
    assert answer.error_code == E.INVALID_TIMESTAMP
    assert watch.longest_seconds < STALL_SECONDS


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_bombs_go_off_elsewhere(broker: Any, codec: Codec) -> None:
    with LoopWatch(broker) as watch:
        answer = produced(broker, "compacted", bomb(codec))
    assert answer.error_code in (E.NONE, E.MESSAGE_TOO_LARGE)
    assert watch.longest_seconds < STALL_SECONDS


def test_many_empty_gzip_members_take_no_longer_than_their_bytes() -> None:
    import gzip

    members = gzip.compress(b"") * 50_000
    began = time.process_time()
    assert decompress(Codec.GZIP, members) == b""
    assert time.process_time() - began < 2.0  # 2.4 s on a fast machine when each copied what lies behind it


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_records_that_share_one_offset_are_refused_where_a_batch_is_opened(broker: Any, codec: Codec) -> None:
    answer = produced(broker, "compacted", sealed(dense_payload(3, same_offset=True), 3, codec=codec))
    assert answer.error_code == E.INVALID_RECORD
    assert "incremental offsets" in answer.record_errors[0].batch_index_error_message
    assert [error.batch_index for error in answer.record_errors] == [1, 2]


def test_a_dead_inspection_process_is_replaced(broker: Any) -> None:
    process = broker._broker.inspector._process
    assert process is not None
    os.kill(process.pid, 9)
    assert produced(broker, "compacted", sealed(dense_payload(2000), 2000)).error_code == E.NONE
    assert broker._broker.inspector._process.pid != process.pid
