"""Putting compacted segments in the place of the old ones, by renames in an order that survives a crash anywhere.

1. `.cleaned` → `.swap`, highest base first: while one `.cleaned` is left, loading undoes all.
2. old files → `.deleted`, lowest first.
3. `.swap` → final names, lowest first. Loading finishes 2 and 3 from any point.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.log import disk, maintenance, producer_snapshot
from penstock.log.compaction import Output
from penstock.log.files import CLEANED_SUFFIX, SEGMENT_SUFFIXES, SWAP_SUFFIX, file_name, fsync_directory, unlink_all
from penstock.log.segment import Segment

if TYPE_CHECKING:
    from penstock.log.log import Log


def _nothing(_: str) -> None:
    """The step hook of everyday use; tests stop at a step."""


def replace_segments(log: Log, outputs: list[Output], step: Callable[[str], None] = _nothing) -> None:
    """Swap in verified `.cleaned` files. Afterwards readers see the new segments; open regions keep the old files.

    OSError: the log is as it was. LogWriteError: it is neither, and its folder has failed."""
    directory = log.directory
    try:
        for output in sorted(outputs, key=lambda output: -output.base_offset):
            for suffix in SEGMENT_SUFFIXES:
                name = file_name(output.base_offset, suffix)
                _rename(directory / (name + CLEANED_SUFFIX), directory / (name + SWAP_SUFFIX))
                step(f"swap {name}")
        fsync_directory(directory)
    except OSError:
        _take_back(log, outputs)
        raise
    step("swaps are durable")
    replaced = {base for output in outputs for base in output.sources}
    old = [segment for segment in log.segments if segment.base_offset in replaced]
    doomed: list[Path] = []
    try:
        for segment in old:
            doomed += segment.rename_deleted()
            step(f"deleted {segment.base_offset}")
        for output in sorted(outputs, key=lambda output: output.base_offset):
            for suffix in SEGMENT_SUFFIXES:
                name = file_name(output.base_offset, suffix)
                _rename(directory / (name + SWAP_SUFFIX), directory / name)
                step(f"final {name}")
        fsync_directory(directory)
    except OSError as error:
        raise maintenance.half_way(log, error, "compacted") from error
    created_ms = log.events.clock.now_ms()
    fresh = [
        Segment(
            directory,
            output.base_offset,
            output.size,
            (directory / file_name(output.base_offset, SEGMENT_SUFFIXES[3])).exists(),
            created_ms,
        )
        for output in outputs
    ]
    kept = [segment for segment in log.segments if segment.base_offset not in replaced]
    log.set_segments(sorted(fresh + kept, key=lambda segment: segment.base_offset))
    gone = replaced - {output.base_offset for output in outputs}
    unlink_all(producer_snapshot.snapshot_path(directory, base) for base in gone)
    log.events.discard(doomed, log.config.file_delete_delay_ms)
    if log.on_history_changed is not None:
        log.on_history_changed()


def _take_back(log: Log, outputs: list[Output]) -> None:
    """The lowest base last: a start that finds a `.swap` of it takes the swap for begun."""
    try:
        for output in sorted(outputs, key=lambda output: -output.base_offset):
            for suffix in SEGMENT_SUFFIXES:
                disk.discard(log.directory / (file_name(output.base_offset, suffix) + SWAP_SUFFIX))
    except OSError as error:
        raise maintenance.half_way(log, error, "compacted") from error


def _rename(source: Path, target: Path) -> None:
    try:
        disk.replace(source, target)
    except FileNotFoundError:
        if source.name.partition(".")[2].startswith("log"):
            raise
