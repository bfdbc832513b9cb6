"""What the broker's loop does for all logs from time to time, and how often."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.log import lost_and_found, retention
from penstock.log.damage import BAD_BYTES
from penstock.log.results import LogWriteError

if TYPE_CHECKING:
    from penstock.log.log_manager import LogManager

logger = logging.getLogger(__name__)

TICK_MS: Final = 1000
FOREVER: Final = 2**63 - 1


class BackgroundTask(NamedTuple):
    """A plain function that the broker's loop calls every `interval_ms`; what may block it hands to threads itself."""

    name: str
    interval_ms: int
    run: Callable[[], None]


def background_tasks(manager: LogManager) -> list[BackgroundTask]:
    """Retention, flush, checkpoints, producer expiry, unlinking, compaction."""
    settings = manager.settings
    flush_ms = TICK_MS if settings.flush_scheduler_interval_ms >= FOREVER else settings.flush_scheduler_interval_ms
    tasks = [
        BackgroundTask("log-retention", settings.retention_check_interval_ms, partial(enforce_retention, manager)),
        BackgroundTask("log-flush", max(flush_ms, 1), partial(flush_due, manager)),
        BackgroundTask("log-tick", TICK_MS, manager.tick),
        BackgroundTask(
            "recovery-points", max(settings.flush_offset_checkpoint_interval_ms, 1), manager.checkpoint_recovery_points
        ),
        BackgroundTask(
            "log-starts", max(settings.flush_start_offset_checkpoint_interval_ms, 1), manager.checkpoint_log_starts
        ),
        BackgroundTask(
            "high-watermarks",
            max(settings.high_watermark_checkpoint_interval_ms, 1),
            manager.checkpoint_high_watermarks,
        ),
        BackgroundTask(
            "producer-expiry", settings.producer_id_expiration_check_interval_ms, partial(expire_producers, manager)
        ),
    ]
    if settings.stray_retention_ms >= 0:
        tasks.append(
            BackgroundTask(
                "strays", settings.retention_check_interval_ms, partial(lost_and_found.delete_old_strays, manager)
            )
        )
    if settings.cleaner_enable:
        tasks.append(
            BackgroundTask("log-cleaner", max(min(settings.cleaner_backoff_ms, 1000), 50), manager.cleaner.tick)
        )
    return tasks


def enforce_retention(manager: LogManager) -> None:
    """Delete old segments of every log; one that fails does not stop the others."""
    now_ms = manager.clock.now_ms()
    for log in list(manager.logs()):
        if manager.cleaner.is_busy_with(log):
            continue
        try:
            retention.enforce(log, now_ms)
        except LogWriteError as error:
            logger.warning("log=%s retention postponed: %s", log.name, error)
        except (*BAD_BYTES, FileNotFoundError) as error:
            log.damage.tell(log.log_start_offset, error)
        except OSError as error:
            manager.fail_directory(log.directory.parent, error)


def flush_due(manager: LogManager) -> None:
    """fsync logs whose `flush.ms` has passed."""
    now_ms = manager.clock.now_ms()
    for log in list(manager.logs()):
        flush_ms = log.config.flush_ms
        if flush_ms < FOREVER and log.log_end_offset > log.recovery_point and now_ms - log.last_flush_ms >= flush_ms:
            manager.disk_work.flush(log)


def expire_producers(manager: LogManager) -> None:
    now_ms = manager.clock.now_ms()
    for log in manager.logs():
        log.producers_state.expire(now_ms, manager.settings.producer_id_expiration_ms)
