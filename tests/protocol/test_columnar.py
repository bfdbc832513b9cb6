"""The kernels tell the same story as the plain implementation, record by record, and refuse what is broken."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.protocol import batch as plain
from penstock.protocol import columnar
from penstock.protocol.codecs import Codec
from penstock.protocol.columnar_jit import cache_folder
from penstock.protocol.records import Record

headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=12)), max_size=3)
records = st.builds(
    lambda time_ms, key, value, head: Record(0, time_ms, key, value, tuple(head)),
    st.integers(0, 2**43),
    st.none() | st.binary(max_size=20),
    st.none() | st.binary(max_size=200),
    headers,
)
codecs = st.sampled_from(list(Codec))


def rows_of(columns: pa.RecordBatch) -> list[tuple[object, ...]]:
    return [
        (
            row["offset"],
            (row["timestamp"] - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1),
            row["key"],
            row["value"],
            tuple((pair["key"], pair["value"]) for pair in row["headers"] or ()),
        )
        for row in columns.to_pylist()
    ]


def expected(record: Record, offset: int) -> tuple[object, ...]:
    return (offset, record.timestamp, record.key, record.value, tuple(record.headers))


@given(st.lists(st.tuples(st.lists(records, min_size=1, max_size=6), codecs), max_size=4), st.integers(0, 2**40))
@settings(deadline=None, max_examples=150)
def test_decode_reads_what_the_plain_writer_wrote(batches: list[tuple[list[Record], Codec]], base: int) -> None:
    blob = b""
    offset = base
    wanted = []
    for content, codec in batches:
        blob += plain.build_batch(content, base_offset=offset, codec=codec)
        wanted += [expected(record, offset + index) for index, record in enumerate(content)]
        offset += len(content)
    decoded = columnar.decode(blob, partition=7, from_offset=base)
    assert rows_of(decoded.columns) == wanted
    assert decoded.next_offset == offset
    assert decoded.bytes_used == len(blob)
    assert set(decoded.columns.column("partition").to_pylist()) <= {7}


@given(st.lists(records, min_size=1, max_size=30), codecs, st.integers(1, 5), st.integers(200, 3000))
@settings(deadline=None, max_examples=150)
def test_encode_writes_what_the_plain_reader_reads(
    content: list[Record], codec: Codec, partition_count: int, max_batch_bytes: int
) -> None:
    keys = pa.array([record.key for record in content], pa.binary())
    partitions = columnar.choose_partitions(keys, partition_count)
    stamp = columnar.ProducerStamp(4711, 3, transactional=True, sequences={0: 2**31 - 2})
    batches = columnar.encode(
        pa.array([record.value for record in content], pa.binary()),
        keys=keys,
        headers=pa.array(
            [[{"key": key, "value": value} for key, value in record.headers] for record in content],
            columnar.HEADER_TYPE,
        ),
        timestamps_ms=np.array([record.timestamp for record in content], np.int64),
        partitions=partitions,
        codec=codec,
        stamp=stamp,
        max_batch_bytes=max_batch_bytes,
    )
    found: dict[int, list[tuple[object, ...]]] = {}
    sequences = {0: 2**31 - 2}
    for encoded in batches:
        header = plain.BatchHeader.parse(encoded.data)
        assert plain.crc_matches(encoded.data, header)
        assert header.is_transactional and header.producer_id == 4711 and header.producer_epoch == 3
        assert header.base_sequence == sequences.get(encoded.partition, 0)
        sequences[encoded.partition] = (header.base_sequence + encoded.record_count) % 2**31
        inside = plain.read_records(encoded.data)
        assert [record.offset for record in inside] == list(range(encoded.record_count))
        assert header.max_timestamp == max(record.timestamp for record in inside)
        assert encoded.record_count == 1 or codec is not Codec.NONE or len(encoded.data) <= max_batch_bytes
        found.setdefault(encoded.partition, []).extend(expected(record, 0) for record in inside)
    wanted: dict[int, list[tuple[object, ...]]] = {}
    for record, partition in zip(content, partitions.tolist(), strict=True):
        wanted.setdefault(partition, []).append(expected(record, 0))
    assert found == wanted
    assert stamp.sequences == {**sequences, 0: sequences[0]}


@given(st.binary(min_size=1, max_size=300), st.data())
@settings(deadline=None, max_examples=300)
def test_broken_bytes_are_refused_and_never_read_beyond(value: bytes, data: st.DataObject) -> None:
    blob = bytearray(plain.build_batch([Record(0, 5, b"key", value, (("h", b"x"),))] * 3))
    at = data.draw(st.integers(12, len(blob) - 1))
    blob[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(columnar.CorruptRecords):
        if at < 16:  # the leader epoch lies outside the checksum, and may be anything
            raise columnar.CorruptRecords
        columnar.decode(blob)
    # Without the checksum the structure may happen to be legal; it must never crash or run on.
    try:
        decoded = columnar.decode(blob, check_crc=False)
    except columnar.CorruptRecords:
        return
    assert decoded.columns.num_rows <= 3


def test_a_cut_off_last_batch_waits_for_the_next_fetch() -> None:
    first = plain.build_batch([Record(0, 1, None, b"a", ())], base_offset=10)
    second = plain.build_batch([Record(0, 1, None, b"b", ())], base_offset=11)
    decoded = columnar.decode(first + second[:-1], from_offset=10)
    assert decoded.columns.column("value").to_pylist() == [b"a"]
    assert decoded.next_offset == 11
    assert decoded.bytes_used == len(first)
    assert columnar.decode(first[:30], from_offset=10).next_offset == 10


def test_only_the_asked_offsets_are_shown() -> None:
    blob = plain.build_batch([Record(0, 1, None, b"%d" % index, ()) for index in range(10)], base_offset=100)
    decoded = columnar.decode(blob, from_offset=103, end_offset=106, with_headers=False)
    assert decoded.columns.column("value").to_pylist() == [b"3", b"4", b"5"]
    assert decoded.columns.schema.names == ["key", "value", "partition", "offset", "timestamp", "timestampType"]


def test_append_time_replaces_every_record_time() -> None:
    blob = plain.build_batch([Record(0, 1, None, b"a", ())] * 2, append_time_ms=1_700_000_000_123)
    columns = columnar.decode(blob).columns
    assert columns.column("timestampType").to_pylist() == [1, 1]
    assert columns.column("timestamp").cast(pa.int64()).to_pylist() == [1_700_000_000_123_000] * 2


def test_aborted_data_and_markers_are_hidden_until_the_marker_has_passed() -> None:
    def data(offset: int, producer: int, value: bytes) -> bytes:
        return plain.build_batch(
            [Record(0, 1, None, value, ())], base_offset=offset, producer_id=producer, producer_epoch=0,
            base_sequence=0, transactional=True,
        )  # fmt: skip

    def marker(offset: int, producer: int, commit: bool) -> bytes:
        built = bytearray(
            plain.build_marker(
                producer_id=producer, producer_epoch=0, commit=commit, coordinator_epoch=0, timestamp_ms=1
            )
        )
        plain.patch_offset_and_epoch(built, offset, 0)
        return bytes(built)

    blob = b"".join(
        [
            data(0, 1, b"aborted"),
            data(1, 2, b"kept"),
            plain.build_batch([Record(0, 1, None, b"plain", ())], base_offset=2),
            marker(3, 1, commit=False),
            data(4, 1, b"kept too"),
            marker(5, 2, commit=True),
            marker(6, 1, commit=True),
            data(7, 1, b"aborted again"),
        ]
    )
    decoded = columnar.decode(blob, aborted=[(1, 7), (1, 0)])
    assert decoded.columns.column("value").to_pylist() == [b"kept", b"plain", b"kept too"]
    assert decoded.next_offset == 8
    everything = columnar.decode(blob)
    assert everything.columns.num_rows == 5


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(1, 20), codecs)
@settings(deadline=None, max_examples=60)
def test_pieces_are_the_whole(sizes: list[int], max_records: int, codec: Codec) -> None:
    blob, offset = b"", 0
    for size in sizes:
        content = [Record(0, 1, None, b"%d" % (offset + index), ()) for index in range(size)]
        blob += plain.build_batch(content, base_offset=offset, codec=codec)
        offset += size
    pieces = list(columnar.decode_pieces(blob, max_records=max_records, from_offset=1, with_headers=False))
    assert [value for piece in pieces for value in piece.column("offset").to_pylist()] == list(range(1, offset))
    assert all(piece.num_rows < max_records + max(sizes) for piece in pieces)


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        # Known answers of org.apache.kafka.common.utils.Utils.murmur2.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_keys_go_where_the_java_client_sends_them(key: bytes, hashed: int) -> None:
    chosen = columnar.choose_partitions(pa.array([key]), 1000)
    assert chosen.tolist() == [(hashed & 0x7FFFFFFF) % 1000]


def test_keyless_rows_are_spread_evenly_and_an_asked_partition_is_honoured() -> None:
    keys = pa.array([None] * 90 + [b"k"], pa.binary())
    chosen = columnar.choose_partitions(keys, 3, first_keyless=2)
    assert [chosen.tolist()[:90].count(partition) for partition in range(3)] == [30, 30, 30]
    asked = columnar.choose_partitions(keys, 3, asked=pa.array([1] * 91, pa.int32()))
    assert set(asked.tolist()) == {1}
    with pytest.raises(ValueError, match="partition 9 does not exist"):
        columnar.choose_partitions(pa.array([b"k"]), 3, asked=pa.array([9]))


def test_sliced_string_and_large_columns_are_taken_as_they_are() -> None:
    values = pa.array(["zero", "one", None, "three"]).slice(1)
    keys = pa.array([b"a", b"b", b"c", b"d"], pa.large_binary()).slice(1)
    head = pa.array([None, [{"key": "h", "value": None}], None, []], columnar.HEADER_TYPE).slice(1)
    (batch,) = columnar.encode(values, keys=keys, headers=head, partitions=np.zeros(3, np.int64))
    found = plain.read_records(batch.data)
    assert [record.value for record in found] == [b"one", None, b"three"]
    assert [record.key for record in found] == [b"b", b"c", b"d"]
    assert [tuple(record.headers) for record in found] == [(("h", None),), (), ()]


def test_compiled_code_is_kept_where_it_can_be_written(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        locked = tmp_path / "file-not-folder"
        locked.write_text("")  # root may write anywhere, but not make a folder inside a file
    else:
        locked = tmp_path / "locked"
        locked.mkdir(mode=stat.S_IRUSR | stat.S_IXUSR)
    assert cache_folder(tmp_path, {}, tmp_path) is None
    assert cache_folder(locked, {"NUMBA_CACHE_DIR": "x"}, tmp_path) is None
    assert cache_folder(locked, {"HOME": str(tmp_path)}, tmp_path) == tmp_path / ".cache" / "penstock" / "numba"
    only_temporary = cache_folder(locked, {"HOME": str(locked)}, tmp_path)
    assert only_temporary is not None and only_temporary.parent == tmp_path


def test_protocol_without_columnar_does_not_load_numba() -> None:
    code = "import sys, penstock.protocol.batch, penstock.protocol.messages; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
