"""What the logs of simulated brokers lie on: modelled in memory (here), or real files (`real_logs`)."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from penstock.testing.simulation.disk import (
    ENTRY_BYTES,
    Entry,
    SimLogConfig,
    SimLogManager,
    StoredLog,
    TopicPartition,
    decode_entries,
)

if TYPE_CHECKING:
    from penstock.base.clock import Clock
    from penstock.testing.simulation.invariants import Checker


class Stored(Protocol):
    """The files of one replica, as the checker looks at them."""

    @property
    def entries(self) -> Sequence[Entry]: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def base_offset(self) -> int: ...


class NodeDisk(Protocol):
    """The disk of one broker: it survives what its process does not."""

    full: bool
    clean_stop: tuple[int, int] | None
    """The marker of a stop in peace: first and last broker epoch."""

    def open(self, checker: Checker, clock: Clock) -> Any:
        """The log manager of a new life; LogDirectoryFailed if the disk does not let it."""

    def stored(self, where: TopicPartition) -> Stored | None: ...

    def look_after(self, hosted: list[TopicPartition], dice: random.Random) -> None:
        """What timers do: checkpoints, and at times a sync."""

    def kill(self) -> None:
        """The process is gone; what it has written is there."""

    def lose_power(self, dice: random.Random) -> list[tuple[TopicPartition, int]]:
        """So is what was not synced, or part of it: from which offset on."""

    def stop(self, hosted: list[TopicPartition], broker_epochs: tuple[int, int] | None) -> None:
        """All is written and synced, the marker is left."""


class Storage(Protocol):
    """What all nodes of a cluster have in common, and the clients' form of a batch."""

    def new_disk(self, node_id: int) -> NodeDisk: ...

    def log_config(self, min_insync_replicas: int) -> Any: ...

    def sealed(self, entry: Entry, now_ms: int) -> tuple[Entry, bytes]:
        """The batch that a producer sends, and what the log will have of it."""

    def next_sequence(self, entry: Entry) -> int: ...

    def entries_in(self, data: bytes | memoryview) -> Iterator[Entry]: ...

    def bytes_of(self, region: Any) -> bytes:
        """Read a region when it is sent, not when it was found: the file may have changed meanwhile."""

    def close(self) -> None: ...


class ModelDisk:
    """Logs in memory."""

    def __init__(self, node_id: int) -> None:
        self.logs: dict[TopicPartition, StoredLog] = {}
        self.full = False
        self.clean_stop: tuple[int, int] | None = None
        self._node_id = node_id
        self._open: SimLogManager | None = None

    def open(self, checker: Checker, clock: Clock) -> SimLogManager:
        self._open = SimLogManager(self._node_id, self, checker)
        return self._open

    def stored(self, where: TopicPartition) -> StoredLog | None:
        return self.logs.get(where)

    def look_after(self, hosted: list[TopicPartition], dice: random.Random) -> None:
        for where in hosted:
            log = self._open and self._open.get(*where)
            if log:
                log.checkpoint()
                if dice.random() < 0.5:
                    log.sync()

    def kill(self) -> None:
        self._open = None

    def lose_power(self, dice: random.Random) -> list[tuple[TopicPartition, int]]:
        lost = []
        for where, stored in self.logs.items():
            keep = dice.randint(stored.synced, len(stored.entries))
            if keep < len(stored.entries):
                lost.append((where, stored.entries[keep].base_offset))
                stored.lose_tail(keep)
        return lost

    def stop(self, hosted: list[TopicPartition], broker_epochs: tuple[int, int] | None) -> None:
        for where in hosted:
            log = self._open and self._open.get(*where)
            if log:
                log.checkpoint()
                log.sync()
        self.clean_stop = broker_epochs


class ModelledStorage:
    """A batch is an entry of fixed size, and has one sequence number."""

    def new_disk(self, node_id: int) -> ModelDisk:
        return ModelDisk(node_id)

    def log_config(self, min_insync_replicas: int) -> SimLogConfig:
        return SimLogConfig(min_insync_replicas)

    def sealed(self, entry: Entry, now_ms: int) -> tuple[Entry, bytes]:
        return entry, entry.encode()

    def next_sequence(self, entry: Entry) -> int:
        return entry.sequence + 1

    def entries_in(self, data: bytes | memoryview) -> Iterator[Entry]:
        return decode_entries(data)

    def bytes_of(self, region: Any) -> bytes:
        if region is None or not region.length:
            return b""
        entries = region.file[region.position : region.position + region.length // ENTRY_BYTES]
        return b"".join(entry.encode() for entry in entries)

    def close(self) -> None:
        pass
