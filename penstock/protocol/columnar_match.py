"""Finding records in fetched batches: a kernel looks at all of them, and only what it finds becomes an object.

The kernel may be asked for less than is wanted (one condition for the key, one for the value, one for a header); who
wants more looks at what was found. It never leaves out a record that fulfils the conditions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from penstock.protocol import columnar_decode as reading
from penstock.protocol.columnar import PROBLEMS, CorruptRecords, as_array, plain_records, scan, visible_batches
from penstock.protocol.columnar_decode import read_varint
from penstock.protocol.columnar_flat import sealed
from penstock.protocol.columnar_jit import inlined, kernel
from penstock.protocol.records import Record, decode_records

ANYTHING, HOLDS, IS, STARTS, HOLDS_OR_ESCAPES = range(5)
"""HOLDS_OR_ESCAPES: a text in JSON, whose letters may also be written with a backslash."""

PIECE_RECORDS: Final = 200_000
OFFSET, TIMESTAMP, START, END, BATCH = range(5)
_HIT_COLUMNS: Final = 5
_BACKSLASH: Final = 92


@dataclass(frozen=True, slots=True)
class Condition:
    how: int = ANYTHING
    text: bytes = b""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a record must fulfil; a null key, value or header value fulfils nothing but ANYTHING."""

    key: Condition = Condition()
    value: Condition = Condition()
    header: Condition = Condition()
    header_name: bytes | None = None
    """The header of this name; without one, any."""


class Hits:
    """Records that were found in one piece of a fetch: offsets and times at once, each of them when it is asked for."""

    def __init__(self, plain: Any, rows: Any, hits: Any) -> None:
        self._plain, self._rows, self._hits = plain, rows, hits
        self.offsets, self.timestamps = hits[:, OFFSET], hits[:, TIMESTAMP]

    def __len__(self) -> int:
        return len(self._hits)

    def newest(self, most: int) -> Hits:
        """The so many of them with the latest times; of one time, with the highest offsets."""
        order = np.lexsort((self.offsets, self.timestamps))[-most:]
        return Hits(self._plain, self._rows, self._hits[order])

    def record(self, index: int) -> Record:
        _, _, start, end, batch = self._hits[index].tolist()
        row = self._rows[batch].tolist()
        append_time = row[reading.MAX_TIMESTAMP] if row[reading.ATTRIBUTES] & reading.APPEND_TIME_BIT else None
        raw = self._plain[start:end].tobytes()
        return decode_records(raw, 1, row[reading.BASE_OFFSET], row[reading.BASE_TIMESTAMP], append_time)[0]


NO_HITS: Final = Hits(np.zeros(0, np.uint8), np.zeros((0, 0), np.int64), np.zeros((0, _HIT_COLUMNS), np.int64))


class Matcher:
    """Conditions made ready for the kernel."""

    def __init__(self, conditions: Conditions) -> None:
        self._arguments: tuple[Any, ...] = ()
        for condition in (conditions.key, conditions.value, conditions.header):
            self._arguments += (condition.how, _text(condition.text), _fall_back(condition.text))
        name = conditions.header_name
        self._arguments += (name is not None, _text(name or b""))

    def find(
        self,
        data: bytes | bytearray | memoryview,
        *,
        from_offset: int,
        end_offset: int,
        aborted: Iterable[tuple[int, int]] = (),
    ) -> Iterator[Hits]:
        """Committed records with from_offset ≤ offset < end_offset that fulfil the conditions, in log order."""
        buffer = as_array(data)
        table, _ = scan(buffer)
        rows = visible_batches(data, buffer, table, from_offset, end_offset, aborted, True)
        counts = rows[:, reading.COUNT]
        piece_of_batch = (np.cumsum(counts) - counts) // PIECE_RECORDS
        for piece in np.unique(piece_of_batch):
            chosen = rows[piece_of_batch == piece]
            plain, spans = plain_records(data, buffer, chosen)
            room = int(chosen[:, reading.COUNT].clip(min=0).sum())
            if room > int((spans[:, 1] - spans[:, 0]).sum()):  # a count that lies must not make us allocate for it
                raise CorruptRecords(PROBLEMS[reading.BAD_RECORD])
            hits = np.empty((room, _HIT_COLUMNS), np.int64)
            status, found = find_records(plain, spans, chosen, hits, from_offset, end_offset, *self._arguments)
            if status != reading.OK:
                raise CorruptRecords(f"{PROBLEMS[status]}, base offset {chosen[found, reading.BASE_OFFSET]}")
            yield Hits(plain, chosen, hits[:found])


def _text(text: bytes) -> Any:
    return sealed(np.frombuffer(text or b"\0", dtype=np.uint8))[: len(text)]


def _fall_back(text: bytes) -> Any:
    """Knuth, Morris and Pratt: how much of the text is still matched after a mismatch behind so many bytes."""
    table = np.zeros(max(1, len(text)), dtype=np.int64)
    matched = 0
    for index in range(1, len(text)):
        while matched and text[index] != text[matched]:
            matched = int(table[matched - 1])
        matched += text[index] == text[matched]
        table[index] = matched
    return table


@inlined
def _holds(buffer: Any, start: int, end: int, text: Any, fall_back: Any) -> bool:
    """Linear in the bytes that are looked at, whatever they and the text are."""
    size = len(text)
    if size == 0:
        return True
    first = text[0]
    last_start = end - size
    matched = 0
    position = start
    while position < end:
        if matched == 0:
            while position <= last_start and buffer[position] != first:
                position += 1
            if position > last_start:
                return False
            matched = 1
        else:
            byte = buffer[position]
            while matched > 0 and byte != text[matched]:
                matched = fall_back[matched - 1]
            if matched == 0 and byte != first:
                position += 1
                continue
            matched += 1
        position += 1
        if matched == size:
            return True
    return False


@inlined
def _equals(buffer: Any, start: int, text: Any) -> bool:
    for index in range(len(text)):  # noqa: SIM110 - a generator would be Python's, not the kernel's
        if buffer[start + index] != text[index]:
            return False
    return True


@inlined
def _fulfils(buffer: Any, start: int, size: int, how: int, text: Any, fall_back: Any) -> bool:
    if how == ANYTHING:
        return True
    if size < 0:
        return False
    if how in (HOLDS, HOLDS_OR_ESCAPES):
        if _holds(buffer, start, start + size, text, fall_back):
            return True
        if how == HOLDS_OR_ESCAPES:
            for position in range(start, start + size):
                if buffer[position] == _BACKSLASH:
                    return True
        return False
    if size < len(text) or (how == IS and size != len(text)):
        return False
    return _equals(buffer, start, text)


@kernel
def find_records(
    buffer: Any,  # uint8: plain record bytes of all batches
    spans: Any,  # int64 [batch, 2]: start and end of a batch's records in `buffer`
    rows: Any,  # int64 [batch, TABLE_COLUMNS]: the header of that batch
    hits: Any,  # int64 [records, 5] out
    from_offset: int,
    end_offset: int,
    key_how: int,
    key_text: Any,
    key_fall_back: Any,
    value_how: int,
    value_text: Any,
    value_fall_back: Any,
    header_how: int,
    header_text: Any,
    header_fall_back: Any,
    is_named: bool,
    header_name: Any,
) -> tuple[int, int]:
    """(status, how many were found, or the index of the batch that is broken)."""
    found = 0
    for batch in range(len(spans)):
        position = spans[batch, 0]
        batch_end = spans[batch, 1]
        for _ in range(rows[batch, reading.COUNT]):
            start = position
            size, position = read_varint(buffer, position, batch_end)
            if position < 0 or size < 6 or position + size > batch_end:
                return reading.BAD_RECORD, batch
            end = position + size
            timestamp_delta, position = read_varint(buffer, position + 1, end)
            if position < 0:
                return reading.BAD_RECORD, batch
            offset_delta, position = read_varint(buffer, position, end)
            if position < 0:
                return reading.BAD_RECORD, batch
            key_size, position = read_varint(buffer, position, end)
            if position < 0 or key_size < -1 or position + key_size > end:
                return reading.BAD_RECORD, batch
            offset = rows[batch, reading.BASE_OFFSET] + offset_delta
            wanted = from_offset <= offset < end_offset
            wanted = wanted and _fulfils(buffer, position, key_size, key_how, key_text, key_fall_back)
            if not wanted:
                position = end
                continue
            position += max(0, key_size)
            value_size, position = read_varint(buffer, position, end)
            if position < 0 or value_size < -1 or position + value_size > end:
                return reading.BAD_RECORD, batch
            if not _fulfils(buffer, position, value_size, value_how, value_text, value_fall_back):
                position = end
                continue
            position += max(0, value_size)
            if header_how != ANYTHING:
                headers, position = read_varint(buffer, position, end)
                if position < 0 or headers < 0 or headers > end - position:
                    return reading.BAD_RECORD, batch
                wanted = False
                for _header in range(headers):
                    name_size, position = read_varint(buffer, position, end)
                    if position < 0 or name_size < 0 or position + name_size > end:
                        return reading.BAD_RECORD, batch
                    is_it = not is_named or (name_size == len(header_name) and _equals(buffer, position, header_name))
                    position += name_size
                    content_size, position = read_varint(buffer, position, end)
                    if position < 0 or content_size < -1 or position + content_size > end:
                        return reading.BAD_RECORD, batch
                    if is_it and _fulfils(buffer, position, content_size, header_how, header_text, header_fall_back):
                        wanted = True
                        break
                    position += max(0, content_size)
            position = end
            if wanted:
                hits[found, OFFSET] = offset
                is_append_time = (rows[batch, reading.ATTRIBUTES] & reading.APPEND_TIME_BIT) != 0
                hits[found, TIMESTAMP] = (
                    rows[batch, reading.MAX_TIMESTAMP]
                    if is_append_time
                    else rows[batch, reading.BASE_TIMESTAMP] + timestamp_delta
                )
                hits[found, START] = start
                hits[found, END] = end
                hits[found, BATCH] = batch
                found += 1
        if position != batch_end:
            return reading.BAD_COUNT, batch
    return reading.OK, found
