"""Replicas that are not where they should be: folders found twice, folders that nobody claims, losses that an operator
has accepted."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.log.log import Log
    from penstock.log.log_manager import LogManager

logger = logging.getLogger(__name__)


def better_of(manager: LogManager, one: Log, other: Log) -> Log:
    """A replica that lies in two directories: a move between them was cut short, or one of them was away for a while.
    The one that saw the latest leader, and of equals the longer one, is taken."""
    worse, better = sorted((one, other), key=lambda log: (log.latest_epoch() or 0, log.log_end_offset))
    worse.abandon()
    directory = manager.directory_of(worse)
    assert directory is not None
    directory.checkpoints.retire([(worse.topic, worse.partition)])
    kept = directory.set_aside(worse.directory)
    logger.error("log=%s lies in two folders: %s is taken, the other now %s", better.name, better.directory, kept)
    return better


def is_loss_accepted(manager: LogManager) -> bool:
    """An operator has said so, and no directory is missing in which the replicas might still be."""
    return not manager.failed_directories and any(directory.loss_is_accepted for directory in manager.online.values())


def forget_acceptance(manager: LogManager) -> None:
    """What is lost later needs a new word from the operator."""
    for directory in list(manager.online.values()):
        try:
            if directory.loss_is_accepted:
                directory.forget_acceptance()
                logger.info("directory=%s nothing is missing any more, a later loss is a new question", directory.path)
        except OSError as error:
            manager.fail_directory(directory.path, error)


def stray_count(manager: LogManager) -> int:
    """Folders that were set aside and are still there."""
    count = 0
    for directory in list(manager.online.values()):
        try:
            count += len(directory.stray_folders())
        except OSError as error:
            manager.fail_directory(directory.path, error)
    return count


def delete_old_strays(manager: LogManager) -> None:
    """Folders that nobody has claimed for `penstock.stray.retention.ms`."""
    for directory in list(manager.online.values()):
        try:
            for folder, since_ms in directory.stray_folders():
                if manager.clock.now_ms() - since_ms >= manager.settings.stray_retention_ms:
                    logger.warning("folder=%s was set aside long ago and goes now", folder)
                    manager.disk_work.unlink_later([folder], 0)
        except OSError as error:
            manager.fail_directory(directory.path, error)
