"""Who waits for which node: one-shot watches, kept and fired as ZooKeeper does."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.store.interface import EventKind, Watch, WatchEvent


class WatchTable:
    """Watches of one session, by path: on the node itself and on its list of children."""

    def __init__(self) -> None:
        self._node: dict[str, list[Watch]] = {}
        self._children: dict[str, list[Watch]] = {}

    def add_node(self, path: str, watch: Watch) -> None:
        self._add(self._node, path, watch)

    def add_children(self, path: str, watch: Watch) -> None:
        self._add(self._children, path, watch)

    @staticmethod
    def _add(table: dict[str, list[Watch]], path: str, watch: Watch) -> None:
        waiting = table.setdefault(path, [])
        if watch not in waiting:  # ZooKeeper too calls one watcher once, however often it asked
            waiting.append(watch)

    def take(self, events: Iterable[WatchEvent]) -> list[tuple[Watch, WatchEvent]]:
        """The calls that these events cause; what is called is forgotten."""
        calls: list[tuple[Watch, WatchEvent]] = []
        for event in events:
            if event.kind is EventKind.CHILDREN:
                watches = self._children.pop(event.path, [])
            else:
                watches = self._node.pop(event.path, [])
                if event.kind is EventKind.DELETED:
                    watches = watches + [w for w in self._children.pop(event.path, []) if w not in watches]
            calls.extend((watch, event) for watch in watches)
        return calls

    def clear(self) -> None:
        self._node.clear()
        self._children.clear()
