"""A replica on its way to another log directory: a second log is filled beside the first and then takes its place.

Its folder ends with `-future`, so that no start takes it for a replica; one that a stop interrupted is deleted and the
move begins anew when it is asked for again.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.log import disk, maintenance, recovery
from penstock.log.checkpoints import write_topic_id
from penstock.log.files import fsync_directory
from penstock.log.log_directory import FUTURE_SUFFIX, NAME_MAX

if TYPE_CHECKING:
    from penstock.log.log import Log
    from penstock.log.log_manager import LogManager


def begin(manager: LogManager, log: Log, directory: Path) -> Log:
    """An empty log in `directory` that starts where `log` starts. OSError if the folder does not let us."""
    suffix = f".{uuid.uuid4().hex}{FUTURE_SUFFIX}"
    folder = directory / (f"{log.topic}-{log.partition}"[: NAME_MAX - len(suffix)] + suffix)
    disk.mkdir(folder, 0o700)
    future = manager.new_log(folder, log.topic, log.partition, log.config, log.topic_id)
    if log.topic_id is not None:
        write_topic_id(folder, log.topic_id)
    maintenance.begin(future, log.log_start_offset)
    return future


def abandon(manager: LogManager, future: Log) -> None:
    """The move is off: the half-filled log goes."""
    future.abandon()
    manager.disk_work.unlink_later([future.directory], 0)


def promote(manager: LogManager, log: Log, future: Log) -> Log:
    """Put the filled log in the place of the old one; the log to use from now on. OSError leaves the old one in use.

    As in Kafka the new folder gets its name before the old one loses it: a crash in between shows both, and a start
    says so instead of choosing.
    """
    if future.log_end_offset != log.log_end_offset:
        raise ValueError(f"{log.name} ends at {log.log_end_offset}, the log to replace it at {future.log_end_offset}")
    high_watermark, log_start = log.high_watermark, log.log_start_offset
    maintenance.close(future, clean=True)
    directory = future.directory.parent
    folder = directory / f"{log.topic}-{log.partition}"
    target = manager.directory_of(future)
    if target is not None:
        target.checkpoints.forget((log.topic, log.partition))  # of an earlier stay
    disk.replace(future.directory, folder)
    fsync_directory(directory)
    promoted = manager.new_log(folder, log.topic, log.partition, log.config, log.topic_id)
    recovery.load(
        promoted,
        clean=True,
        recovery_point=future.log_end_offset,
        log_start_offset=log_start,
        high_watermark=high_watermark,
    )
    manager.replace(log, promoted)
    manager.log_starts_changed = True
    return promoted
