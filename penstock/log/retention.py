"""Which old segments may go: by log start, size and time, in Kafka's order. Compacted topics only by log start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.log import maintenance

if TYPE_CHECKING:
    from penstock.log.log import Log


def enforce(log: Log, now_ms: int) -> int:
    """Delete what qualifies now; bytes freed. LogWriteError if a roll was needed and the disk refused."""
    log.write_staged()
    freed = maintenance.delete_oldest(log, _below_log_start(log))
    if log.config.cleanup_delete:
        freed += maintenance.delete_oldest(log, _beyond_size(log))
        freed += maintenance.delete_oldest(log, _beyond_time(log, now_ms))
    return freed


def _deletable(log: Log, index: int) -> bool:
    """Only what the high watermark has passed, and never an empty newest segment."""
    if index + 1 < len(log.segments):
        return log.high_watermark >= log.segments[index + 1].base_offset
    return log.active.size > 0 and log.high_watermark >= log.log_end_offset


def _below_log_start(log: Log) -> int:
    count = 0
    while (
        count + 1 < len(log.segments)
        and log.segments[count + 1].base_offset <= log.log_start_offset
        and _deletable(log, count)
    ):
        count += 1
    return count


def _beyond_size(log: Log) -> int:
    limit = log.config.retention_bytes
    excess = log.size_bytes() - limit
    if limit < 0 or excess < 0:
        return 0
    count = 0
    while count < len(log.segments) and excess - log.segments[count].size >= 0 and _deletable(log, count):
        excess -= log.segments[count].size
        count += 1
    return count


def _beyond_time(log: Log, now_ms: int) -> int:
    limit = log.config.retention_ms
    if limit < 0:
        return 0
    count = 0
    while (
        count < len(log.segments)
        and _deletable(log, count)
        and now_ms - log.segments[count].retention_timestamp() > limit
    ):
        count += 1
    return count
