"""The broker-level settings that concern all logs together."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.base.settings import Settings

_FOREVER = 2**63 - 1


@dataclass(frozen=True)
class ManagerSettings:
    """The broker-level settings that concern all logs together; names are Kafka's, without `log.`."""

    retention_check_interval_ms: int = 300_000
    flush_scheduler_interval_ms: int = _FOREVER
    flush_offset_checkpoint_interval_ms: int = 60_000
    flush_start_offset_checkpoint_interval_ms: int = 60_000
    high_watermark_checkpoint_interval_ms: int = 5000
    producer_id_expiration_ms: int = 86_400_000
    producer_id_expiration_check_interval_ms: int = 600_000
    recovery_threads: int = 2
    cleaner_enable: bool = True
    cleaner_backoff_ms: int = 15_000
    cleaner_dedupe_buffer_size: int = 134_217_728
    cleaner_io_max_bytes_per_second: float = 1.7976931348623157e308
    verify_transactions: bool = True
    stray_retention_ms: int = 604_800_000

    @classmethod
    def of(cls, settings: Settings) -> ManagerSettings:
        return cls(
            retention_check_interval_ms=settings["log.retention.check.interval.ms"],
            flush_scheduler_interval_ms=settings["log.flush.scheduler.interval.ms"],
            flush_offset_checkpoint_interval_ms=settings["log.flush.offset.checkpoint.interval.ms"],
            flush_start_offset_checkpoint_interval_ms=settings["log.flush.start.offset.checkpoint.interval.ms"],
            high_watermark_checkpoint_interval_ms=settings["replica.high.watermark.checkpoint.interval.ms"],
            producer_id_expiration_ms=settings["producer.id.expiration.ms"],
            recovery_threads=settings["num.recovery.threads.per.data.dir"],
            cleaner_enable=settings["log.cleaner.enable"],
            cleaner_backoff_ms=settings["log.cleaner.backoff.ms"],
            cleaner_dedupe_buffer_size=settings["log.cleaner.dedupe.buffer.size"],
            cleaner_io_max_bytes_per_second=settings["log.cleaner.io.max.bytes.per.second"],
            verify_transactions=settings["transaction.partition.verification.enable"],
            stray_retention_ms=settings["penstock.stray.retention.ms"],
        )
