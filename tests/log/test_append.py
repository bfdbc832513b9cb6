"""What a leader takes in and what it refuses, with Kafka's own codes."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from penstock.base.clock import ManualClock
from penstock.log.log import Log
from penstock.log.results import Origin, RecordError
from penstock.log.validation import inspect, needs_inspection
from penstock.protocol.batch import BatchHeader, build_batch, build_marker, crc_matches, iterate_batches, read_records
from penstock.protocol.codecs import Codec
from penstock.protocol.crc import crc32c
from penstock.protocol.errors import ErrorCode
from penstock.protocol.records import new_record
from penstock.testing.log_tools import append, batch_of, commit_all, end_transaction, put, read_all

MakeLog = Callable[..., Log]
NOW = 1_700_000_000_000


def sealed(batch: bytearray) -> bytes:
    """The batch with a checksum that fits again."""
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return bytes(batch)


def altered(log: Log, position: int, form: str, value: int, reseal: bool = True) -> bytes:
    batch = bytearray(batch_of(log, (b"k", b"v"), (b"k2", b"v2")))
    struct.pack_into(form, batch, position, value)
    return sealed(batch) if reseal else bytes(batch)


def test_offsets_epoch_and_bytes(make_log: MakeLog) -> None:
    log = make_log()
    first = append(log, (b"a", b"1"), (b"b", b"2"), epoch=4)
    second = append(log, (b"c", b"3"), epoch=4)
    assert (first.error, first.base_offset, first.last_offset) == (ErrorCode.NONE, 0, 1)
    assert (second.base_offset, second.last_offset, second.log_start_offset) == (2, 2, 0)
    commit_all(log)
    data = log.read_bytes(0, 100_000)
    assert [(h.base_offset, h.leader_epoch) for h in iterate_batches(data)] == [(0, 4), (2, 4)]
    assert all(crc_matches(data, header) for header in iterate_batches(data))
    assert [record.value for record in read_all(log)] == [b"1", b"2", b"3"]
    assert log.latest_epoch() == 4


def test_the_senders_buffer_is_not_touched_and_may_die(make_log: MakeLog) -> None:
    log = make_log()
    put(log, (b"x", b"y"))
    buffer = bytearray(batch_of(log, (b"k", b"v")))
    before = bytes(buffer)
    log.append_as_leader(memoryview(buffer), 0, NOW)
    assert bytes(buffer) == before
    buffer[:] = bytes(len(buffer))
    commit_all(log)
    assert [record.value for record in read_all(log)] == [b"y", b"v"]


@pytest.mark.parametrize(
    ("position", "form", "value", "reseal", "error"),
    [
        (0, ">q", 5, True, ErrorCode.INVALID_RECORD),  # base offset
        (8, ">i", 13, True, ErrorCode.CORRUPT_MESSAGE),  # impossible length
        (8, ">i", 40, True, ErrorCode.CORRUPT_MESSAGE),
        (8, ">i", 100_000, True, ErrorCode.INVALID_RECORD),  # cut
        (16, ">b", 1, True, ErrorCode.INVALID_RECORD),  # magic
        (16, ">b", 3, True, ErrorCode.CORRUPT_MESSAGE),
        (21, ">h", 5, True, ErrorCode.UNKNOWN_SERVER_ERROR),  # no such codec
        (17, ">I", 1, False, ErrorCode.CORRUPT_MESSAGE),  # checksum
        (21, ">h", 0x20, True, ErrorCode.INVALID_RECORD),  # control bit
        (21, ">h", 0x20 - 0x8000, True, ErrorCode.INVALID_RECORD),  # the same behind the sign
        (21, ">h", 5 - 0x8000, True, ErrorCode.UNKNOWN_SERVER_ERROR),  # an unknown codec behind the sign
        (23, ">i", 5, True, ErrorCode.INVALID_RECORD),  # last offset delta
        (23, ">i", -1, True, ErrorCode.INVALID_RECORD),
        (57, ">i", 0, True, ErrorCode.INVALID_RECORD),  # count
        (57, ">i", -3, True, ErrorCode.INVALID_RECORD),
        (43, ">q", 7, True, ErrorCode.INVALID_RECORD),  # producer id without a sequence
    ],
)
def test_broken_headers(
    make_log: MakeLog, position: int, form: str, value: int, reseal: bool, error: ErrorCode
) -> None:
    log = make_log()
    result = log.append_as_leader(altered(log, position, form, value, reseal), 0, NOW)
    assert result.error is error, result
    assert (result.base_offset, result.last_offset, result.append_time_ms) == (-1, -1, -1)
    assert log.log_end_offset == 0


def test_counts_that_lie(make_log: MakeLog) -> None:
    log = make_log()
    lie = bytearray(batch_of(log, (b"k", b"v"), (b"k2", b"v2")))
    struct.pack_into(">i", lie, 23, 2)
    struct.pack_into(">i", lie, 57, 3)
    assert log.append_as_leader(sealed(lie), 0, NOW).error is ErrorCode.INVALID_RECORD
    one = bytearray(batch_of(log, (b"k", b"v")))
    one += b"trailing"
    struct.pack_into(">i", one, 8, len(one) - 12)
    assert log.append_as_leader(sealed(one), 0, NOW).error is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", list(Codec))
def test_counts_that_no_batch_of_that_size_can_hold(make_log: MakeLog, codec: Codec) -> None:
    log = make_log()
    lie = bytearray(batch_of(log, (b"k", b"v"), codec=codec))
    struct.pack_into(">i", lie, 23, 2**31 - 2)
    struct.pack_into(">i", lie, 57, 2**31 - 1)
    assert log.append_as_leader(sealed(lie), 0, NOW).error is ErrorCode.INVALID_RECORD


def test_more_than_one_batch_or_none(make_log: MakeLog) -> None:
    log = make_log()
    batch = batch_of(log, (b"k", b"v"))
    assert log.append_as_leader(batch + batch, 0, NOW).error is ErrorCode.INVALID_RECORD
    assert log.append_as_leader(b"", 0, NOW).error is ErrorCode.INVALID_RECORD
    assert log.append_as_leader(batch[:-1], 0, NOW).error is ErrorCode.INVALID_RECORD
    assert log.append_as_leader(batch + batch, 0, NOW).log_start_offset == -1, "no log was asked yet"
    assert log.append_as_leader(batch + batch[:-1], 0, NOW).error is ErrorCode.NONE, "a cut one does not count"
    commit_all(log)
    assert len(read_all(log)) == 1


def test_too_large(make_log: MakeLog) -> None:
    log = make_log(max_message_bytes=200)
    result = append(log, (b"k", bytes(500)))
    assert result.error is ErrorCode.MESSAGE_TOO_LARGE
    assert result.log_start_offset == -1
    small_segments = make_log(name="small-0", segment_bytes=300)
    assert append(small_segments, (b"k", bytes(500))).error is ErrorCode.RECORD_LIST_TOO_LARGE


# -- timestamps


def test_log_append_time(make_log: MakeLog) -> None:
    log = make_log(message_timestamp_type="LogAppendTime")
    result = append(log, (b"k", b"v"), timestamp=5)
    assert result.append_time_ms == NOW
    commit_all(log)
    header = next(iter(iterate_batches(log.read_bytes(0, 1000))))
    assert header.is_log_append_time
    assert crc_matches(log.read_bytes(0, 1000), header)
    assert read_all(log)[0].timestamp == NOW


def test_timestamps_far_from_now(make_log: MakeLog) -> None:
    log = make_log(message_timestamp_before_max_ms=1000)
    batch = build_batch([new_record(b"k", b"v", NOW), new_record(b"k", b"w", NOW - 1001)])
    result = log.append_as_leader(batch, 0, NOW)
    assert result.error is ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in result.record_errors] == [1]
    assert result.message is not None
    future = append(log, (b"k", b"v"), timestamp=NOW + 3_600_001)
    assert future.error is ErrorCode.INVALID_TIMESTAMP
    assert append(log, (b"k", b"v"), timestamp=NOW + 3_600_000).error is ErrorCode.NONE
    assert append(log, (b"k", b"v"), timestamp=-1).error is ErrorCode.NONE


def test_a_large_batch_from_the_future_is_refused_unopened(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log = make_log()
    monkeypatch.setattr("penstock.log.unusual_batch.inspect", None)
    result = append(log, *[(b"k", b"v")] * 5000, codec=Codec.ZSTD, timestamp=NOW + 3_600_001)
    assert (result.error, result.record_errors) == (ErrorCode.INVALID_TIMESTAMP, ())


# -- batches that are opened


@pytest.mark.parametrize("codec", list(Codec))
def test_a_compacted_topic_refuses_records_without_key(make_log: MakeLog, codec: Codec) -> None:
    log = make_log(cleanup_compact=True)
    result = append(log, (b"k", b"v"), (None, b"w"), codec=codec)
    assert result.error is ErrorCode.INVALID_RECORD
    text = "Compacted topic cannot accept message without key in topic partition story-0"
    assert result.record_errors == (RecordError(1, text),)
    assert append(log, (b"k", b"v"), codec=codec).error is ErrorCode.NONE


@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("sent", list(Codec))
def test_a_topic_with_its_own_codec(make_log: MakeLog, wanted: str, sent: Codec) -> None:
    log = make_log(compression_type=wanted)
    rows = [(b"k%d" % number, b"value" * 50) for number in range(100)]
    put(log, *rows, codec=sent)
    header = next(iter(iterate_batches(log.read_bytes(0, 100_000))))
    assert header.codec.kafka_name == ("none" if wanted == "uncompressed" else wanted)
    assert [(record.key, record.value) for record in read_all(log)] == rows


def test_large_batches_are_inspected_outside_and_handed_in(make_log: MakeLog) -> None:
    log = make_log(cleanup_compact=True, max_message_bytes=10_000_000)
    large = batch_of(log, *[(b"k%d" % number, bytes(100)) for number in range(2000)])
    small = batch_of(log, (b"k", b"v"))
    assert needs_inspection(large, log.config)
    assert not needs_inspection(small, log.config)
    assert needs_inspection(batch_of(log, *[(b"k", bytes(9))] * 2000, codec=Codec.ZSTD), log.config)
    found = inspect(large, log.config, NOW, log.name)
    assert log.append_as_leader(large, 0, NOW, inspection=found).error is ErrorCode.NONE
    commit_all(log)
    assert len(read_all(log)) == 2000


def test_broken_compressed_data_is_refused_where_it_is_opened(make_log: MakeLog) -> None:
    log = make_log(cleanup_compact=True)
    batch = bytearray(batch_of(log, *[(b"key", b"value" * 20)] * 20, codec=Codec.ZSTD))
    batch[70:90] = bytes(20)
    assert log.append_as_leader(sealed(batch), 0, NOW).error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert log.log_end_offset == 0


# -- idempotent producers


def send(log: Log, sequence: int, count: int = 1, epoch: int = 0, producer: int = 7, **fields: object):
    rows = [(b"k", b"%d" % sequence)] * count
    return append(log, *rows, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, **fields)


def test_duplicates_of_the_last_five_give_the_first_offsets(make_log: MakeLog) -> None:
    log = make_log()
    for sequence in range(0, 14, 2):
        assert send(log, sequence, count=2).error is ErrorCode.NONE
    commit_all(log)
    for sequence in range(4, 14, 2):
        again = send(log, sequence, count=2)
        assert (again.error, again.duplicate, again.base_offset) == (ErrorCode.NONE, True, sequence)
    assert send(log, 2, count=2).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 4, count=1).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "not exactly the same batch"
    assert log.log_end_offset == 14


def test_gaps_epochs_and_wrapping(make_log: MakeLog) -> None:
    log = make_log()
    assert send(log, 2**31 - 2, count=2).error is ErrorCode.NONE  # no state yet: any sequence
    assert send(log, 0).error is ErrorCode.NONE  # behind 2^31-1 comes 0
    assert send(log, 2).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 1, epoch=1).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 0, epoch=1).error is ErrorCode.NONE
    assert send(log, 1, epoch=0).error is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.producer_epoch(7) == 1


def test_a_batch_whose_sequences_wrap_is_known_when_it_comes_again(make_log: MakeLog) -> None:
    log = make_log()
    assert send(log, 2**31 - 2, count=4).error is ErrorCode.NONE
    assert send(log, 2**31 - 2, count=4).duplicate
    assert send(log, 2).error is ErrorCode.NONE


# -- transactions


def test_the_last_stable_offset_follows_open_transactions(make_log: MakeLog) -> None:
    log = make_log()
    put(log, (b"before", b"1"))
    send(log, 0, producer=1, transactional=True)
    send(log, 0, producer=2, transactional=True)
    commit_all(log)
    assert log.last_stable_offset == 1
    end_transaction(log, 1, commit=True)
    assert log.last_stable_offset == 2
    end_transaction(log, 2, commit=False)
    assert log.last_stable_offset == log.log_end_offset == 5
    assert [tuple(entry) for entry in log.aborted_transactions(0, 5)] == [(2, 2)]
    assert log.aborted_transactions(0, 2) == []
    assert log.aborted_transactions(5, 6) == []


def test_a_marker_counts_only_below_the_high_watermark(make_log: MakeLog) -> None:
    log = make_log()
    send(log, 0, producer=1, transactional=True)
    log.write_staged()
    log.set_high_watermark(1)
    marker = build_marker(1, 0, True, 0, NOW)
    log.append_as_leader(marker, 0, NOW, Origin.COORDINATOR)
    assert log.last_stable_offset == 0
    log.set_high_watermark(2)
    assert log.last_stable_offset == 2


def test_a_new_leadership_asks_once_about_a_transaction_that_is_open(make_log: MakeLog) -> None:
    """Somebody may have taken it over meanwhile, and told only the leader of then."""
    log = make_log()
    log.verify_transactions = True
    for sequence in (0, 1):
        guard = log.start_verification(7, 0, sequence, False)
        assert guard is not None
        batch = batch_of(log, (b"k", b"v"), producer_id=7, producer_epoch=0, base_sequence=sequence, transactional=True)
        assert log.append_as_leader(batch, sequence, NOW).error is ErrorCode.INVALID_TXN_STATE
        assert log.append_as_leader(batch, sequence, NOW, guard=guard).error is ErrorCode.NONE
        assert log.start_verification(7, 0, sequence + 1, False) is None
        log.assign_epoch_start(sequence + 1, log.log_end_offset)


def test_transaction_rules(make_log: MakeLog) -> None:
    log = make_log()
    log.verify_transactions = True
    assert send(log, 0, transactional=True).error is ErrorCode.INVALID_TXN_STATE
    guard = log.start_verification(7, 0, 0, False)
    assert guard is not None
    stale = log.start_verification(8, 0, 0, False)
    batch = batch_of(log, (b"k", b"v"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    assert log.append_as_leader(batch, 0, NOW, guard=stale).error is ErrorCode.INVALID_TXN_STATE
    assert log.append_as_leader(batch, 0, NOW, guard=guard).error is ErrorCode.NONE
    assert log.start_verification(7, 0, 1, False) is None, "a transaction is open: nothing to verify"
    assert send(log, 1, transactional=True).error is ErrorCode.NONE
    assert send(log, 2).error is ErrorCode.INVALID_TXN_STATE, "plain write inside a transaction"
    end_transaction(log, 7, commit=True)
    assert log.append_as_leader(batch, 0, NOW, guard=guard).duplicate
    next_batch = batch_of(log, (b"k", b"v"), producer_id=7, producer_epoch=0, base_sequence=2, transactional=True)
    assert log.append_as_leader(next_batch, 0, NOW, guard=guard).error is ErrorCode.INVALID_TXN_STATE


def test_a_verification_does_not_outlive_the_leadership_that_asked(make_log: MakeLog) -> None:
    """Somebody else may have led meanwhile, and have been told to refuse this writer."""
    log = make_log()
    log.verify_transactions = True
    guard = log.start_verification(7, 0, 0, False)
    log.assign_epoch_start(2, log.log_end_offset)
    batch = batch_of(log, (b"k", b"v"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    assert log.append_as_leader(batch, 2, NOW, guard=guard).error is ErrorCode.INVALID_TXN_STATE
    guard = log.start_verification(7, 0, 0, False)
    assert log.append_as_leader(batch, 2, NOW, guard=guard).error is ErrorCode.NONE


def test_marker_rules(make_log: MakeLog) -> None:
    log = make_log()
    send(log, 0, epoch=3, transactional=True)

    def marker(epoch: int, coordinator_epoch: int, version: int = 1) -> ErrorCode:
        batch = build_marker(7, epoch, True, coordinator_epoch, NOW)
        return log.append_as_leader(batch, 0, NOW, Origin.COORDINATOR, transaction_version=version).error

    assert marker(2, 5) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert marker(3, 5, version=2) is ErrorCode.INVALID_PRODUCER_EPOCH, "version 2 bumps the epoch with each end"
    assert marker(4, 5, version=2) is ErrorCode.NONE
    assert marker(4, 5, version=2) is ErrorCode.NONE, "a retry"
    assert marker(4, 4) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert send(log, 0, epoch=4).error is ErrorCode.NONE, "sequences begin again with the new epoch"


def test_old_producers_are_forgotten_except_inside_a_transaction(make_log: MakeLog, clock: ManualClock) -> None:
    log = make_log()
    send(log, 0, producer=1)
    send(log, 0, producer=2, transactional=True)
    log.producers_state.expire(NOW + 1000, 1000)
    assert [entry.producer_id for entry in log.producers()] == [2]


def test_batch_headers_of_the_hot_path_are_enough(make_log: MakeLog) -> None:
    """A compressed batch is never opened on its way through a plain topic."""
    log = make_log()
    batch = bytearray(batch_of(log, (b"k", b"v" * 100), codec=Codec.LZ4))
    batch[65:80] = bytes(15)
    assert log.append_as_leader(sealed(batch), 0, NOW).error is ErrorCode.NONE
    commit_all(log)
    header = BatchHeader.parse(log.read_bytes(0, 1000))
    assert header.codec is Codec.LZ4
    with pytest.raises(Exception, match="lz4"):
        read_records(log.read_bytes(0, 1000), header)
