"""Tools for stories about the log: a log in a folder, batches to put into it, a reader that behaves as a consumer."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from penstock.base.clock import Clock
from penstock.base.settings import LogConfig
from penstock.log import maintenance, recovery
from penstock.log.events import LogEvents
from penstock.log.log import Log
from penstock.log.results import AppendResult, OffsetOutOfRange, Origin
from penstock.protocol.batch import build_batch, build_marker, iterate_batches, read_records
from penstock.protocol.codecs import Codec
from penstock.protocol.records import Record, new_record


def shell(directory: Path, clock: Clock, **config: Any) -> Log:
    topic, _, partition = directory.name.rpartition("-")
    return Log(directory, topic, int(partition), LogConfig(**config), LogEvents(clock), verify_transactions=False)


def new_log(directory: Path, clock: Clock, **config: Any) -> Log:
    directory.mkdir(parents=True, exist_ok=True)
    log = shell(directory, clock, **config)
    maintenance.begin(log, 0)
    return log


def reload(
    log: Log,
    *,
    clean: bool = False,
    recovery_point: int = 0,
    log_start: int = 0,
    hw: int | None = None,
    cleaned_to: int = 0,
) -> Log:
    """The log as a broker finds it that starts on the same folder."""
    fresh = Log(log.directory, log.topic, log.partition, log.config, LogEvents(log.events.clock))
    fresh.verify_transactions = False
    high_watermark = log.high_watermark if hw is None else hw
    recovery.load(
        fresh,
        clean=clean,
        recovery_point=recovery_point,
        log_start_offset=log_start,
        high_watermark=high_watermark,
        cleaned_to=cleaned_to,
    )
    return fresh


def copy_of(log: Log, target: Path) -> Log:
    """The same files elsewhere, as a crash would leave them; a shell to load them."""
    log.write_staged()
    shutil.copytree(log.directory, target)
    return Log(target, log.topic, log.partition, log.config, LogEvents(log.events.clock))


def batch_of(
    log: Log, *keys_and_values: tuple[bytes | None, bytes | None], codec: Codec = Codec.NONE, **fields: Any
) -> bytes:
    now_ms = fields.pop("timestamp", log.events.clock.now_ms())
    return build_batch([new_record(key, value, now_ms) for key, value in keys_and_values], codec=codec, **fields)


def append(
    log: Log, *keys_and_values: tuple[bytes | None, bytes | None], epoch: int = 0, **fields: Any
) -> AppendResult:
    """One batch; staged only."""
    return log.append_as_leader(batch_of(log, *keys_and_values, **fields), epoch, log.events.clock.now_ms())


def put(log: Log, *keys_and_values: tuple[bytes | None, bytes | None], **fields: Any) -> int:
    """One batch, written and committed; its base offset."""
    result = append(log, *keys_and_values, **fields)
    assert not result.error, result
    commit_all(log)
    return result.base_offset


def end_transaction(
    log: Log, producer_id: int, *, commit: bool, producer_epoch: int = 0, epoch: int = 0
) -> AppendResult:
    marker = build_marker(producer_id, producer_epoch, commit, 0, log.events.clock.now_ms())
    result = log.append_as_leader(marker, epoch, log.events.clock.now_ms(), Origin.COORDINATOR)
    commit_all(log)
    return result


def commit_all(log: Log) -> None:
    log.write_staged()
    log.set_high_watermark(log.log_end_offset)


def read_all(log: Log, start: int | None = None, upper: int | None = None, max_bytes: int = 65536) -> list[Record]:
    """Every data record from `start` on, as a consumer gets them, one fetch after the other."""
    offset = log.log_start_offset if start is None else start
    end = log.log_end_offset if upper is None else upper
    records: list[Record] = []
    while offset < end:
        assert not isinstance(log.read(offset, max_bytes, end), OffsetOutOfRange)
        data = log.read_bytes(offset, max_bytes, end)
        if not data:
            return records
        progressed = False
        for header in iterate_batches(data):
            if header.next_offset <= offset:
                raise AssertionError(f"a fetch at {offset} gave {header}")
            if not header.is_control:
                records += [record for record in read_records(data, header) if record.offset >= offset]
            offset = header.next_offset
            progressed = True
        assert progressed, f"a fetch at {offset} gave no whole batch"
    return records


def values_of(log: Log) -> dict[bytes, bytes | None]:
    """What a reader of a compacted topic ends up with."""
    state: dict[bytes, bytes | None] = {}
    for record in read_all(log):
        if record.key is not None:
            state[record.key] = record.value
    return {key: value for key, value in state.items() if value is not None}
