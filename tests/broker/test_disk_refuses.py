"""A broker whose disk refuses single calls: nothing void is acknowledged, and what is sound is served."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from raw_client import RawClient, batch, ensure_topic, fetch_request, produce_request, request_frame

import penstock
from penstock.log import disk
from penstock.protocol import messages
from penstock.protocol.codecs import Codec
from penstock.protocol.errors import ErrorCode


@pytest.fixture
def two_partitions(tmp_path: Path) -> Iterator[penstock.Broker]:
    with penstock.Broker(tmp_path / "data", num_partitions=2, compression_type="lz4") as running:
        ensure_topic(running.port, "t")
        yield running


class Refused:
    """Writes to one log fail while this is in force."""

    def __init__(self, patch: pytest.MonkeyPatch, name: str) -> None:
        self._name, self._pwrite = name, os.pwrite
        patch.setattr(disk, "pwrite", self._write)

    def _write(self, fd: int, data: bytes, position: int) -> int:
        if self._name in str(Path(f"/proc/self/fd/{fd}").readlink()):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._pwrite(fd, data, position)


@pytest.mark.parametrize("acks", [1, -1])
def test_a_produce_that_has_to_wait_for_a_thread_hears_of_its_first_partitions_failure(
    two_partitions: penstock.Broker, monkeypatch: pytest.MonkeyPatch, acks: int
) -> None:
    """The first is appended at once, the second must be opened in a thread: a write in between is the first one's."""
    request = produce_request("t", batch(b"small"), acks=acks)
    api = messages.api("produce").load_all_versions()
    large = batch(*[os.urandom(100) for _ in range(1500)], codec=Codec.GZIP)
    request.topic_data[0].partition_data.append(api.PartitionProduceData(index=1, records=large))
    with RawClient(two_partitions.port) as client:
        with monkeypatch.context() as patch:
            Refused(patch, "/t-0/")
            first, second = client.call("produce", 9, request).responses[0].partition_responses
        assert (first.error_code, second.error_code) == (ErrorCode.KAFKA_STORAGE_ERROR, 0)
        assert first.base_offset == -1
        answer = client.call("fetch", 12, fetch_request("t", 0))
        assert not answer.responses[0].partitions[0].records
        again: Any = client.call("produce", 9, produce_request("t", batch(b"again"), acks=acks)).responses[0]
        assert (again.partition_responses[0].error_code, again.partition_responses[0].base_offset) == (0, 0)


def test_a_large_request_is_written_in_slices_and_each_failure_is_told_of(
    two_partitions: penstock.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of five batches of 900 KB in one request two go into the first slice, and so on; one log refuses all writes."""
    api = messages.api("produce").load_all_versions()
    records = batch(os.urandom(900_000), codec=Codec.LZ4)
    request = produce_request("t", records)
    parts = [api.PartitionProduceData(index=index, records=records) for index in (1, 1, 0, 1)]
    request.topic_data[0].partition_data += parts
    with RawClient(two_partitions.port) as client:
        with monkeypatch.context() as patch:
            Refused(patch, "/t-0/")
            answers = client.call("produce", 9, request).responses[0].partition_responses
        storage = int(ErrorCode.KAFKA_STORAGE_ERROR)
        assert [one.error_code for one in answers] == [storage, 0, 0, storage, 0]
        assert [one.base_offset for one in answers] == [-1, 0, 1, -1, 2]
        (fetched,) = client.call("fetch", 12, fetch_request("t", 0, partition=1, max_bytes=9 << 20)).responses
        assert fetched.partitions[0].high_watermark == 3
        assert len(fetched.partitions[0].records) == 3 * len(records)


def two_segments(client: RawClient, partition: int) -> None:
    for _ in range(3):
        (answer,) = client.call(
            "produce", 9, produce_request("t", batch(os.urandom(700_000)), partition=partition)
        ).responses
        assert answer.partition_responses[0].error_code == 0


def scribble(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(16)
        file.write(b"\x07")


def shorten(path: Path) -> None:
    os.truncate(path, 1000)


DAMAGE = {
    "wrong magic": (scribble, ErrorCode.CORRUPT_MESSAGE),
    "short": (shorten, ErrorCode.CORRUPT_MESSAGE),
    "missing": (Path.unlink, ErrorCode.KAFKA_STORAGE_ERROR),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_one_bad_segment_costs_its_partition_only(tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str) -> None:
    damage, expected = DAMAGE[kind]
    settings = {"log.segment.bytes": "1048576"}
    with penstock.Broker(tmp_path / "data", num_partitions=2, settings=settings) as broker:
        ensure_topic(broker.port, "t")
        with RawClient(broker.port) as client:
            two_segments(client, 0)
            two_segments(client, 1)
            damage(tmp_path / "data" / "t-0" / f"{0:020d}.log")
            request = fetch_request("t", 0, max_bytes=4 << 20)
            api = messages.api("fetch").load_all_versions()
            request.topics[0].partitions.append(
                api.FetchPartition(partition=1, fetch_offset=0, partition_max_bytes=1 << 20)
            )
            for _ in range(3):
                bad, good = client.call("fetch", 12, request).responses[0].partitions
                assert (bad.error_code, len(bad.records or b"")) == (expected, 0)
                assert good.error_code == 0
                assert len(good.records) > 700_000
            later = client.call("fetch", 12, fetch_request("t", 2)).responses[0].partitions[0]
            assert (later.error_code, bool(later.records)) == (0, True), "the segments behind it are sound"
            by_time = messages.api("list_offsets").load_all_versions()
            asked = by_time.ListOffsetsPartition(partition_index=0, timestamp=1)
            topics = [by_time.ListOffsetsTopic(name="t", partitions=[asked])]
            found = client.call("list_offsets", 7, by_time.Request(replica_id=-1, topics=topics)).topics[0]
            assert found.partitions[0].error_code in (0, expected)
    said = [record.getMessage() for record in caplog.records if "cannot be read" in record.getMessage()]
    assert len([line for line in said if "log=t-0 offset=0 " in line]) <= 2, said
    assert f"{0:020d}.log" in said[0]


def test_a_file_that_shrinks_under_its_readers_is_named_and_then_answered_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with penstock.Broker(tmp_path / "data") as broker:
        ensure_topic(broker.port, "t")
        with RawClient(broker.port) as client:
            two_segments(client, 0)
            os.truncate(tmp_path / "data" / "t-0" / f"{0:020d}.log", 100)
            client.send(request_frame("fetch", 12, fetch_request("t", 0)))
            with pytest.raises(ConnectionError):
                client.read_frame()  # its head had promised more than there is
        with RawClient(broker.port) as client:
            for _ in range(3):
                answer = client.call("fetch", 12, fetch_request("t", 0)).responses[0].partitions[0]
                assert answer.error_code == ErrorCode.CORRUPT_MESSAGE
    said = [record.getMessage() for record in caplog.records if "cannot be read" in record.getMessage()]
    assert len(said) == 1, said


def test_a_log_that_cannot_be_understood_does_not_keep_the_broker_from_starting(tmp_path: Path) -> None:
    broker = penstock.Broker(tmp_path / "data", num_partitions=2, settings={"log.segment.bytes": "1048576"})
    with broker:
        ensure_topic(broker.port, "t")
        with RawClient(broker.port) as client:
            two_segments(client, 0)
            two_segments(client, 1)
        broker.stop()
        folder = tmp_path / "data" / "t-0"
        for path in folder.glob("*.snapshot"):
            path.unlink()
        scribble(max(folder.glob("*.log")))
        broker.start()
        with RawClient(broker.port) as client:
            good = client.call("fetch", 12, fetch_request("t", 0, partition=1)).responses[0].partitions[0]
            assert (good.error_code, bool(good.records)) == (0, True)
            bad = client.call("fetch", 12, fetch_request("t", 0)).responses[0].partitions[0]
            assert bad.error_code == ErrorCode.KAFKA_STORAGE_ERROR
