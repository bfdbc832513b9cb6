"""Checking log files: `penstock log verify PATH`. One row per problem; no rows means that all is well.

The index rules are those that Kafka's DumpLogSegments checks.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from penstock.log import txn_index
from penstock.log.dump import Row, dump, dump_offset_index, dump_time_index, walk_segment
from penstock.log.files import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    offset_of,
)
from penstock.log.log_directory import partition_of
from penstock.log.txn_index import InvalidTxnIndex
from penstock.protocol.batch import InvalidBatch, crc_matches, read_records
from penstock.protocol.codecs import CodecError
from penstock.protocol.records import InvalidRecords


class _Batch(NamedTuple):
    position: int
    last_offset: int
    max_timestamp: int


def verify(path: Path, *, records: bool = False) -> Iterator[Row]:
    """Problems of a segment and its indexes, of a replica's folder, or of a whole log directory.

    `records` also opens every batch.
    """
    if path.is_file():
        stem = path.name.partition(".")[0]
        yield from _verify_segment(path.with_name(stem + LOG_SUFFIX), records, -1)[0]
        return
    previous_end = -1
    for entry in sorted(path.iterdir()):
        if entry.is_dir():
            if partition_of(entry.name) is not None:
                yield from verify(entry, records=records)
        elif entry.name.endswith(LOG_SUFFIX) and offset_of(entry.name) is not None:
            problems, previous_end = _verify_segment(entry, records, previous_end)
            yield from problems
        elif not entry.name.endswith((INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)):
            for row in dump(entry):
                if "problem" in row:
                    yield {"file": row["file"], "problem": row["problem"]}


def _verify_segment(path: Path, records: bool, previous_end: int) -> tuple[list[Row], int]:
    """(problems, offset behind the last batch)."""
    problems: list[Row] = []

    def complain(file: Path, problem: str) -> None:
        problems.append({"file": str(file), "problem": problem})

    base_offset = offset_of(path.name) or 0
    if base_offset < previous_end:
        complain(path, f"begins at {base_offset}, but the segment before it ends at {previous_end}")
    next_offset = base_offset
    batches: list[_Batch] = []
    try:
        for header, data in walk_segment(path):
            at_zero = header._replace(position=0)
            if not crc_matches(data, at_zero):
                complain(path, f"the checksum of the batch at {header.position} differs")
            if header.base_offset < next_offset:
                complain(path, f"offset {header.base_offset} at {header.position} is before {next_offset}")
            max_timestamp = header.max_timestamp
            if records:
                try:
                    opened = read_records(data, at_zero)
                    max_timestamp = max((record.timestamp for record in opened), default=max_timestamp)
                except (InvalidRecords, CodecError, InvalidBatch) as error:
                    complain(path, f"records of the batch at {header.position}: {error}")
            next_offset = header.next_offset
            batches.append(_Batch(header.position, header.last_offset, max_timestamp))
    except InvalidBatch as error:
        complain(path, str(error))
    except FileNotFoundError:
        complain(path, "missing")
        return problems, next_offset
    problems += _verify_indexes(path, base_offset, batches)
    return problems, next_offset


def _verify_indexes(path: Path, base_offset: int, batches: list[_Batch]) -> Iterator[Row]:
    index = path.with_name(path.name.removesuffix(LOG_SUFFIX) + INDEX_SUFFIX)
    times = path.with_name(path.name.removesuffix(LOG_SUFFIX) + TIME_INDEX_SUFFIX)
    transactions = path.with_name(path.name.removesuffix(LOG_SUFFIX) + TXN_INDEX_SUFFIX)
    by_position = {batch.position: batch for batch in batches}
    by_last_offset = {batch.last_offset: batch for batch in batches}
    if not index.exists():
        yield {"file": str(index), "problem": "missing"}
    else:
        for row in dump_offset_index(index, base_offset):
            found = by_position.get(row.get("position", -1))
            if "problem" in row:
                yield {"file": str(index), "problem": row["problem"]}
            elif found is None or found.last_offset != row["offset"]:
                yield {"file": str(index), "problem": f"no batch ends at {row['offset']} from {row['position']} on"}
    if not times.exists():
        yield {"file": str(times), "problem": "missing"}
        return
    last_timestamp = -1
    for row in dump_time_index(times, base_offset):
        if "problem" in row:
            yield {"file": str(times), "problem": row["problem"]}
            continue
        found = by_last_offset.get(row["offset"])
        if found is None:
            yield {"file": str(times), "problem": f"no batch ends at {row['offset']}"}
        elif found.max_timestamp != row["timestamp"]:
            yield {"file": str(times), "problem": f"{row['timestamp']} is not the time of the batch at {row['offset']}"}
        if row["timestamp"] <= last_timestamp:
            yield {"file": str(times), "problem": f"{row['timestamp']} behind {last_timestamp}"}
        last_timestamp = row["timestamp"]
    try:
        txn_index.read_txn_index(transactions)
    except InvalidTxnIndex as error:
        yield {"file": str(transactions), "problem": str(error)}
