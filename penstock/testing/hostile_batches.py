"""Batches that hold much more than their bytes tell: for attacks and for the tests of the limits."""

from __future__ import annotations

import time

from penstock.protocol.batch import seal_batch
from penstock.protocol.codecs import Codec, compress
from penstock.protocol.records import encode_record, encode_varint

_FRONT = b"\x00\x00"  # attributes, time


def dense_payload(count: int, key: bytes | None = b"", *, same_offset: bool = False) -> bytes:
    """`count` of the smallest records there are."""
    tail = (b"\x01" if key is None else encode_varint(len(key)) + key) + b"\x01\x00"
    if same_offset:
        body = _FRONT + b"\x00" + tail
        return (encode_varint(len(body)) + body) * count
    bodies = (_FRONT + encode_varint(index) + tail for index in range(count))
    return b"".join(encode_varint(len(body)) + body for body in bodies)


def sealed(
    payload: bytes, count: int, *, codec: Codec = Codec.ZSTD, timestamp: int | None = None, attributes: int = 0
) -> bytes:
    return sealed_as_it_is(compress(codec, payload), codec, count, timestamp=timestamp, attributes=attributes)


def sealed_as_it_is(
    content: bytes, codec: Codec, count: int = 1, *, timestamp: int | None = None, attributes: int = 0
) -> bytes:
    """A batch of these bytes, whatever the codec will make of them."""
    now = int(time.time() * 1000) if timestamp is None else timestamp
    return bytes(
        seal_batch(
            content,
            base_offset=0,
            leader_epoch=-1,
            attributes=attributes | int(codec),
            last_offset_delta=count - 1,
            base_timestamp=now,
            max_timestamp=now,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            record_count=count,
        )
    )


def bomb(codec: Codec, plain_bytes: int = 1 << 30) -> bytes:
    """One record whose value is zeros: few bytes on the wire."""
    record = encode_record(0, 0, b"k", bytes(min(plain_bytes, 1 << 26)), ())
    return sealed(record, 1, codec=codec)
