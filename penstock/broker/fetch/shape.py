"""The shape of a consumer's last fetch on the wire: most of the next one is the same bytes, and most of its answer is.

A consumer of one partition sends request after request in which only the session's epoch and the offset change. What
does not fit goes the general way (`fetch_codec`), which makes the same bytes of the same answer.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from penstock.broker.fetch.codec import FIRST_FLEXIBLE, FIRST_WITH_SESSIONS, FIRST_WITH_TOPIC_ID, FetchRequest
from penstock.broker.network.large_frames import ReceiveBuffer
from penstock.broker.network.wire import INT32, INT64, compact_string, string, varint
from penstock.replication.roles import Bound

_int32 = INT32.unpack_from
_int64 = INT64.unpack_from
_FLEXIBLE_HEAD = Struct(">iibihi")  # size, correlation id, tags, throttle time, error, session id
_PLAIN_HEAD = Struct(">iiihi")
_TAGS_BEHIND = b"\x00\x00\x00"  # of the partition, the topic and the answer


class FetchShape:
    """One named partition, nothing forgotten; see `shape_of`."""

    __slots__ = ("_answer_head", "_epoch_at", "_flexible", "_head", "_index", "_middle", "_middle_at",
                 "_middle_of_answer", "_offset_at", "_pack", "_size", "_tail", "_tail_at", "version")  # fmt: skip

    def __init__(self, body: bytes, epoch_at: int, offset_at: int, request: FetchRequest, bound: int) -> None:
        version = self.version = request.version
        self._flexible = version >= FIRST_FLEXIBLE
        self._size = len(body)
        self._epoch_at, self._offset_at = epoch_at, offset_at
        self._middle_at, self._tail_at = epoch_at + 4, offset_at + 8
        self._head = body[:epoch_at]
        self._middle = body[self._middle_at : offset_at]
        self._tail = body[self._tail_at :]
        asked = request.partitions[0]
        self._index = asked.index
        preferred_replica = INT32.pack(-1) if version >= 11 else b""
        if self._flexible:
            name = asked.name if version >= FIRST_WITH_TOPIC_ID else compact_string(asked.name)
            self._answer_head = b"\x02" + name + b"\x02"
            aborted = b"\x01" if bound == Bound.LAST_STABLE else b"\x00"
        else:
            self._answer_head = INT32.pack(1) + string(asked.name) + INT32.pack(1)
            aborted = INT32.pack(0 if bound == Bound.LAST_STABLE else -1)
        self._middle_of_answer = aborted + preferred_replica
        self._pack = Struct(f">{len(self._answer_head)}sihqqq{len(self._middle_of_answer)}s").pack

    def offset_in(self, buffer: ReceiveBuffer, version: int, position: int, end: int) -> int:
        """The offset that a request of this shape asks for; -1 if it has another."""
        if (
            end - position != self._size
            or version != self.version
            or not buffer.startswith(self._middle, position + self._middle_at)
            or not buffer.startswith(self._head, position)
            or not buffer.startswith(self._tail, position + self._tail_at)
        ):
            return -1
        offset: int = _int64(buffer, position + self._offset_at)[0]
        return offset

    def epoch_in(self, buffer: ReceiveBuffer, position: int) -> int:
        epoch: int = _int32(buffer, position + self._epoch_at)[0]
        return epoch

    def part(self, high_watermark: int, last_stable_offset: int, log_start_offset: int, records: bytearray) -> bytes:
        """The answer from its list of topics on: what all readers of this partition have in common."""
        head = self._pack(
            self._answer_head,
            self._index,
            0,
            high_watermark,
            last_stable_offset,
            log_start_offset,
            self._middle_of_answer,
        )
        if self._flexible:
            return b"".join((head, varint(len(records) + 1), records, _TAGS_BEHIND))
        return b"".join((head, INT32.pack(len(records)), records))

    def answer(self, correlation_id: int, session_id: int, part: bytes) -> bytes:
        """The whole frame around such a part."""
        if self._flexible:
            return _FLEXIBLE_HEAD.pack(len(part) + 15, correlation_id, 0, 0, 0, session_id) + part
        return _PLAIN_HEAD.pack(len(part) + 14, correlation_id, 0, 0, session_id) + part


def shape_of(request: FetchRequest, buffer: Any, position: int, end: int, bound: int) -> FetchShape | None:
    """The shape of a request just parsed, if it is simple enough to come again."""
    version = request.version
    if version < FIRST_WITH_SESSIONS or len(request.partitions) != 1 or request.forgotten:
        return None
    asked = request.partitions[0]
    epoch_at = 17 if version >= 15 else 21
    if version >= FIRST_FLEXIBLE:
        name = asked.name if version >= FIRST_WITH_TOPIC_ID else compact_string(asked.name)
        before = b"\x02" + name + b"\x02" + INT32.pack(asked.index)
    else:
        before = INT32.pack(1) + string(asked.name) + INT32.pack(1) + INT32.pack(asked.index)
    if version >= 9:
        before += INT32.pack(asked.current_leader_epoch)
    offset_at = epoch_at + 4 + len(before)
    body = bytes(buffer[position:end])
    if before + INT64.pack(asked.offset) != body[epoch_at + 4 : offset_at + 8]:
        return None  # numbers written longer than need be: the offset is not where it should be
    if INT32.pack(request.session_epoch) != body[epoch_at : epoch_at + 4]:
        return None
    return FetchShape(body, epoch_at, offset_at, request, bound)
