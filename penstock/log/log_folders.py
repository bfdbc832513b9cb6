"""How a replica's folder becomes a Log: begun anew, or loaded at a start. All of it blocks, and runs in threads."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.base.settings import LogConfig
from penstock.log import checkpoints, disk, maintenance, recovery
from penstock.log.checkpoints import read_topic_id, write_topic_id
from penstock.log.damage import BAD_BYTES

if TYPE_CHECKING:
    from penstock.log.log import Log
    from penstock.log.log_directory import LogDirectory

NewLog = Callable[[Path, str, int, LogConfig, uuid.UUID | None], "Log"]


class WantedLog(NamedTuple):
    """A replica that this broker is about to host."""

    topic: str
    partition: int
    topic_id: uuid.UUID | None
    config: LogConfig


class BadLog(NamedTuple):
    """A replica whose files cannot be understood: it is off line, and left as it is for whoever can."""

    topic: str
    partition: int
    folder: Path
    error: Exception


Placed = tuple["LogDirectory", WantedLog]
"""A replica and the directory that it shall lie in."""


def begin(directory: LogDirectory, wanted: WantedLog, new_log: NewLog) -> Log:
    """A log in its own folder. Its topic id is on the disk before anybody can append to it: a folder without an id
    would be taken for the log of whatever topic has the name next."""
    name = f"{wanted.topic}-{wanted.partition}"
    if Path(name).name != name or wanted.partition < 0:  # checked at the door as well: it must stay in its directory
        raise ValueError(f"no replica can lie in a folder named {name[:300]!r}")
    folder = directory.path / name
    log = new_log(folder, wanted.topic, wanted.partition, wanted.config, wanted.topic_id)
    if make_folder(directory, folder, wanted):
        maintenance.begin(log, 0)
    else:  # whatever a hand or a crash left there is kept, never overwritten
        recovery.load(log, clean=False, recovery_point=0, log_start_offset=0, high_watermark=0)
        if wanted.topic_id is not None:
            write_topic_id(folder, wanted.topic_id)
    return log


def make_folder(directory: LogDirectory, folder: Path, wanted: WantedLog) -> bool:
    """With its topic id in it, or not at all; False if it is there already and not that of another topic."""
    directory.checkpoints.forget((wanted.topic, wanted.partition))
    try:
        disk.mkdir(folder, 0o700)
    except FileExistsError:
        if not belongs_to_another(folder, wanted.topic_id):
            return False
        directory.rename_for_deletion(folder)  # a deletion that the disk refused; the next start unlinks it
        disk.mkdir(folder, 0o700)
    if wanted.topic_id is not None:
        try:
            write_topic_id(folder, wanted.topic_id)
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    return True


def promise(directory: LogDirectory, wanted: WantedLog, new_log: NewLog) -> Log:
    """A log that has no room to begin: it takes appends when there is some, and makes its folder then."""
    folder = directory.path / f"{wanted.topic}-{wanted.partition}"
    log = new_log(folder, wanted.topic, wanted.partition, wanted.config, wanted.topic_id)
    maintenance.begin(log, 0)

    log.active.prepare = partial(make_folder, directory, folder, wanted)
    return log


def belongs_to_another(folder: Path, topic_id: uuid.UUID | None) -> bool:
    """Whether the folder is the log of an older topic of the same name."""
    stored = read_topic_id(folder)
    return topic_id is not None and stored is not None and stored != topic_id


def begin_each(placed: Sequence[Placed], new_log: NewLog) -> list[tuple[Placed, Log | Exception]]:
    """Begin several, one after the other; one that fails does not keep the others from it."""
    outcomes: list[tuple[Placed, Log | Exception]] = []
    for one in placed:
        try:
            outcomes.append((one, begin(*one, new_log)))
        except Exception as error:
            outcomes.append((one, error))
    return outcomes


def load_all(
    directory: LogDirectory, new_log: NewLog, config_for: Callable[[str], LogConfig], threads: int
) -> Iterator[Log | BadLog]:
    """Every log of a directory, recovered if its last stop was not clean."""
    recovery_points = directory.checkpoints.read(checkpoints.RECOVERY_POINTS)
    log_starts = directory.checkpoints.read(checkpoints.LOG_STARTS)
    high_watermarks = directory.checkpoints.read(checkpoints.HIGH_WATERMARKS)
    cleaned_to = directory.checkpoints.read(checkpoints.CLEANER_OFFSETS)

    def load(replica: tuple[str, int, Path]) -> Log | BadLog:
        topic, partition, folder = replica
        key = (topic, partition)
        log = new_log(folder, topic, partition, config_for(topic), None)
        try:
            recovery.load(
                log,
                clean=directory.was_clean,
                recovery_point=recovery_points.get(key, 0),
                log_start_offset=log_starts.get(key, 0),
                high_watermark=high_watermarks.get(key, 0),
                cleaned_to=cleaned_to.get(key, 0),
            )
        except BAD_BYTES as error:
            return BadLog(topic, partition, folder, error)
        return log

    if directory.was_clean:
        # A few small files each, mostly in memory: threads would cost more in taking turns than they win.
        yield from map(load, directory.replica_folders())
        return
    with ThreadPoolExecutor(max_workers=max(1, threads)) as loaders:
        yield from loaders.map(load, directory.replica_folders())


def spread(wanted: list[WantedLog], filled: dict[Path, int]) -> list[tuple[Path, WantedLog]]:
    """Which directory each goes to: always the one that holds the fewest."""
    filled = dict(filled)
    placed = []
    for one in wanted:
        path = min(filled, key=lambda path: (filled[path], str(path)))
        filled[path] += 1
        placed.append((path, one))
    return placed
