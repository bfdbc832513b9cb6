"""Record batches and codecs: what is built is read back, what Kafka would refuse is refused, bombs do not go off."""

from __future__ import annotations

import contextlib
import gzip

import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol.batch import (
    HEADER_BYTES,
    BatchHeader,
    InvalidBatch,
    build_batch,
    build_marker,
    crc_matches,
    iterate_batches,
    patch_offset_and_epoch,
    patch_timestamp,
    read_marker,
    read_records,
)
from penstock.protocol.codecs import Codec, CodecError, TooLarge, compress, decompress
from penstock.protocol.records import (
    InvalidRecords,
    Record,
    count_framed_records,
    decode_varint,
    encode_varint,
    new_record,
    scan_records,
)

content = st.none() | st.binary(max_size=200)
record_lists = st.lists(
    st.builds(
        new_record,
        content,
        content,
        st.integers(min_value=0, max_value=2**41),
        st.lists(st.tuples(st.text(max_size=8), content), max_size=3),
    ),
    min_size=1,
    max_size=30,
)
every_codec = pytest.mark.parametrize("codec", list(Codec))


@given(
    records=record_lists,
    codec=st.sampled_from(Codec),
    base_offset=st.integers(min_value=0, max_value=2**62),
    producer_id=st.integers(min_value=-1, max_value=2**62),
    epoch=st.integers(min_value=-1, max_value=2**15 - 1),
)
def test_what_is_built_is_read_back(
    records: list[Record], codec: Codec, base_offset: int, producer_id: int, epoch: int
) -> None:
    batch = build_batch(
        records, base_offset=base_offset, codec=codec, producer_id=producer_id, producer_epoch=epoch, base_sequence=0
    )
    header = BatchHeader.parse(batch)
    assert header.size == len(batch)
    assert crc_matches(batch, header)
    assert (header.base_offset, header.producer_id, header.producer_epoch) == (base_offset, producer_id, epoch)
    assert header.max_timestamp == max(record.timestamp for record in records)
    expected = [
        Record(base_offset + index, record.timestamp, record.key, record.value, record.headers or ())
        for index, record in enumerate(records)
    ]
    assert [record._replace(headers=list(record.headers)) for record in read_records(batch)] == [
        record._replace(headers=list(record.headers)) for record in expected
    ]


@given(st.integers(min_value=-(2**63), max_value=2**63 - 1))
def test_variable_length_numbers(value: int) -> None:
    encoded = encode_varint(value)
    assert decode_varint(encoded, 0) == (value, len(encoded))


@given(records=record_lists)
def test_scanning_and_framing_agree_with_decoding(records: list[Record]) -> None:
    batch = build_batch(records)
    payload = batch[HEADER_BYTES:]
    scanned = scan_records(payload, len(records))
    assert b"".join(record.raw for record in scanned) == payload
    assert [record.key for record in scanned] == [record.key for record in records]
    assert [record.has_value for record in scanned] == [record.value is not None for record in records]
    assert count_framed_records(payload, len(records)) == len(records)
    assert count_framed_records(payload[:-1], len(records)) == -1


@given(records=record_lists, codec=st.sampled_from(Codec), position=st.integers(0, 10_000), flip=st.integers(1, 255))
def test_a_flipped_byte_never_passes_for_the_same_batch(
    records: list[Record], codec: Codec, position: int, flip: int
) -> None:
    batch = build_batch(records, codec=codec)
    damaged = bytearray(batch)
    damaged[position % len(batch)] ^= flip
    try:
        header = BatchHeader.parse(damaged)
        if header.size == len(batch) and crc_matches(damaged, header):
            # only the two fields that a leader rewrites lie outside the checksum
            assert damaged[21:] == batch[21:]
            return
        read_records(damaged, header)
    except (InvalidBatch, InvalidRecords, CodecError):
        pass


def test_a_marker_is_byte_for_byte_what_kafka_writes() -> None:
    marker = bytearray(build_marker(1000, 5, commit=True, coordinator_epoch=3, timestamp_ms=1_700_000_000_000))
    patch_offset_and_epoch(marker, 7, 2)
    assert marker.hex() == (
        "00000000000000070000004200000002020e5f75350030000000000000018bcfe568000000018bcfe568000000000000"
        "0003e80005ffffffff000000012000000008000000010c00000000000300"
    )
    found = read_marker(marker)
    assert found is not None
    assert (found.control_type, found.coordinator_epoch) == (1, 3)


def test_a_leader_sets_the_append_time_and_the_checksum_follows() -> None:
    batch = bytearray(build_batch([new_record(b"k", b"v", 5), new_record(b"k", b"w", 9)]))
    patch_timestamp(batch, 0x08, 1234)
    header = BatchHeader.parse(batch)
    assert crc_matches(batch, header)
    assert [record.timestamp for record in read_records(batch)] == [1234, 1234]


def test_iteration_stops_before_a_cut_batch_and_refuses_nonsense() -> None:
    one = build_batch([new_record(None, b"1", 0)])
    two = build_batch([new_record(None, b"2", 0)], base_offset=1)
    assert [header.base_offset for header in iterate_batches(one + two[:-1])] == [0]
    assert [header.position for header in iterate_batches(one + two)] == [0, len(one)]
    with pytest.raises(InvalidBatch):
        list(iterate_batches(one + bytes(80)))
    wrong_magic = bytearray(one)
    wrong_magic[16] = 1
    with pytest.raises(InvalidBatch):
        list(iterate_batches(wrong_magic))


# -- codecs


@every_codec
@given(data=st.binary(max_size=300_000))
def test_every_codec_gives_back_what_it_took(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data)) == data


PLAIN = bytes(range(256)) * 700 + b"end"


def test_other_implementations_read_our_bytes() -> None:
    assert gzip.decompress(compress(Codec.GZIP, PLAIN)) == PLAIN
    assert lz4.frame.decompress(compress(Codec.LZ4, PLAIN)) == PLAIN
    assert zstandard.ZstdDecompressor().decompressobj().decompress(compress(Codec.ZSTD, PLAIN)) == PLAIN
    packed = compress(Codec.SNAPPY, PLAIN)
    assert packed[:16] == b"\x82SNAPPY\x00" + b"\x00\x00\x00\x01" * 2
    size = int.from_bytes(packed[16:20], "big")
    assert snappy.uncompress(packed[20 : 20 + size]) == PLAIN[:32768]


def test_we_read_bytes_of_other_implementations() -> None:
    assert decompress(Codec.GZIP, gzip.compress(PLAIN)) == PLAIN
    assert decompress(Codec.SNAPPY, snappy.compress(PLAIN)) == PLAIN  # raw, without framing
    assert decompress(Codec.ZSTD, zstandard.ZstdCompressor().compress(PLAIN)) == PLAIN
    for options in (
        {"block_linked": False},
        {"block_linked": False, "content_checksum": True, "store_size": True},
        {"block_linked": False, "block_checksum": True, "block_size": lz4.frame.BLOCKSIZE_MAX4MB},
    ):
        assert decompress(Codec.LZ4, lz4.frame.compress(PLAIN, **options)) == PLAIN
    with pytest.raises(CodecError, match="linked"):
        decompress(Codec.LZ4, lz4.frame.compress(PLAIN, block_linked=True))


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_a_bomb_is_refused_at_its_bound(codec: Codec) -> None:
    bomb = compress(codec, bytes(20_000_000))
    assert len(bomb) < 1_000_000
    with pytest.raises(TooLarge):
        decompress(codec, bomb, max_bytes=1_000_000)
    assert len(decompress(codec, bomb, max_bytes=20_000_000)) == 20_000_000


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
@given(noise=st.binary(max_size=100), cut=st.integers(0, 200))
def test_noise_and_cut_data_are_codec_errors(codec: Codec, noise: bytes, cut: int) -> None:
    for damaged in (noise, compress(codec, PLAIN)[:cut]):
        with contextlib.suppress(CodecError):
            decompress(codec, damaged)
