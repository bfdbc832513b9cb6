"""What the broker's loop calls for all logs from time to time, and how often."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from penstock.log.log_manager import LogManager

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
        BackgroundTask("log-retention", settings.retention_check_interval_ms, manager.enforce_retention),
        BackgroundTask("log-flush", max(flush_ms, 1), manager.flush_due),
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
        BackgroundTask("producer-expiry", settings.producer_id_expiration_check_interval_ms, manager.expire_producers),
    ]
    if settings.cleaner_enable:
        tasks.append(
            BackgroundTask("log-cleaner", max(min(settings.cleaner_backoff_ms, 1000), 50), manager.cleaner.tick)
        )
    return tasks
