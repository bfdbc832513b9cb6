"""The shape of a client's last produce: most of the next one is the same bytes, and so is most of its answer.

A producer sends request after request for the same partition with the same acks and time-out. Comparing those bytes
costs a tenth of parsing them, and the answer is one `pack`. Whatever does not fit goes the general way.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from penstock.broker.network.large_frames import ReceiveBuffer
from penstock.broker.network.wire import INT32, compact_string, string, varint
from penstock.broker.produce.codec import FIRST_FLEXIBLE, FIRST_WITH_TOPIC_ID, ProduceRequest

_int32 = INT32.unpack_from
_TAGS_AFTER_RECORDS = b"\x00\x00\x00"  # of the partition, the topic and the request


class ProduceShape:
    """One topic, one partition, no transaction."""

    __slots__ = ("_answer_bytes", "_answer_head", "_answer_tail", "_flexible", "_head", "_head_bytes",
                 "_pack", "acks", "index", "name", "partition", "timeout_ms", "version")  # fmt: skip

    def __init__(self, version: int, head: bytes, request: ProduceRequest, partition: Any) -> None:
        ((name, ((index, _, _),)),) = request.topics
        self.version = version
        self.acks = request.acks
        self.timeout_ms = request.timeout_ms
        self.name = name
        self.index = index
        self.partition = partition
        self._flexible = version >= FIRST_FLEXIBLE
        self._head = head
        self._head_bytes = len(head)
        self._prepare_answer()

    def _prepare_answer(self) -> None:
        version, name = self.version, self.name
        if self._flexible:
            wire_name = name if version >= FIRST_WITH_TOPIC_ID else compact_string(name)
            head = b"\x00\x02" + wire_name + b"\x02"
            # no record errors, no message, tags of partition and topic, throttle time, tags of the answer
            tail = b"\x01\x00\x00\x00" + INT32.pack(0) + b"\x00"
        else:
            head = INT32.pack(1) + string(name) + INT32.pack(1)
            tail = (INT32.pack(0) + b"\xff\xff" if version >= 8 else b"") + INT32.pack(0)
        layout = Struct(f">ii{len(head)}sihqqq{len(tail)}s")
        self._pack = layout.pack
        self._answer_bytes = layout.size - 4
        self._answer_head = head
        self._answer_tail = tail

    def match(self, buffer: ReceiveBuffer, version: int, position: int, end: int) -> tuple[int, int] | None:
        """(position, size) of the records if the request has this shape."""
        records_at = position + self._head_bytes
        if version != self.version or not buffer.startswith(self._head, position):
            return None
        if not self._flexible:
            if records_at + 4 > end:
                return None
            (size,) = _int32(buffer, records_at)
            start = records_at + 4
            return (start, size) if start + size == end and size > 0 else None
        size = buffer[records_at]
        start = records_at + 1
        if size >= 0x80:
            size = size & 0x7F | (buffer[start] & 0x7F) << 7
            if buffer[start] >= 0x80:
                if buffer[start + 1] >= 0x80:
                    return None  # above 2 MB: parsing costs nothing beside that
                size |= buffer[start + 1] << 14
                start += 1
            start += 1
        size -= 1
        if start + size + 3 != end or size <= 0 or not buffer.startswith(_TAGS_AFTER_RECORDS, end - 3):
            return None
        return start, size

    def answer(self, correlation_id: int, base_offset: int, append_time_ms: int, log_start_offset: int) -> bytes:
        """The whole frame of a successful answer."""
        return self._pack(
            self._answer_bytes,
            correlation_id,
            self._answer_head,
            self.index,
            0,
            base_offset,
            append_time_ms,
            log_start_offset,
            self._answer_tail,
        )


def shape_of(request: ProduceRequest, buffer: Any, version: int, position: int, partition: Any) -> ProduceShape | None:
    """The shape of a request just parsed, if it is simple enough to come again."""
    if len(request.topics) != 1 or len(request.topics[0][1]) != 1 or request.acks not in (-1, 0, 1) or version < 7:
        return None  # before version 7 a batch may not use every codec
    _, start, size = request.topics[0][1][0]
    size_field_bytes = len(varint(size + 1)) if version >= FIRST_FLEXIBLE else 4
    return ProduceShape(version, bytes(buffer[position : start - size_field_bytes]), request, partition)
