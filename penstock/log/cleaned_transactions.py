"""What compaction must know of transactions: whose data was aborted, and which markers nobody needs any more."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from penstock.log.txn_index import AbortedEntry
from penstock.protocol.batch import CONTROL_ABORT, BatchHeader, read_marker


class CleanedTransactions:
    """Fed with the batches of a range in offset order."""

    def __init__(self, aborted: Iterable[AbortedEntry]) -> None:
        """`aborted` by first offset; `keep_aborted` hears of those whose marker stays."""
        self._aborted = deque(aborted)
        self.keep_aborted: Callable[[AbortedEntry], None] | None = None
        self._open_aborted: dict[int, tuple[AbortedEntry, bool]] = {}
        self._open_committed: set[int] = set()

    def on_batch(self, header: BatchHeader) -> bool:
        """True if the batch belongs to an aborted transaction."""
        self._advance(header.last_offset)
        if not header.is_transactional:
            return False
        found = self._open_aborted.get(header.producer_id)
        if found is None:
            self._open_committed.add(header.producer_id)
            return False
        self._open_aborted[header.producer_id] = (found[0], True)
        return True

    def on_control_batch(self, header: BatchHeader, data: memoryview) -> bool:
        """True if the marker's transaction has no data left, so that the marker may go some day."""
        self._advance(header.last_offset)
        if header.record_count == 0:
            return True
        marker = read_marker(data, header)
        if marker is None:
            return False
        if marker.control_type == CONTROL_ABORT:
            found = self._open_aborted.pop(header.producer_id, None)
            if found is not None and found[1]:
                if self.keep_aborted is not None:
                    self.keep_aborted(found[0])
                return False
            return True
        had_data = header.producer_id in self._open_committed
        self._open_committed.discard(header.producer_id)
        return not had_data

    def _advance(self, offset: int) -> None:
        while self._aborted and self._aborted[0].first_offset <= offset:
            entry = self._aborted.popleft()
            self._open_aborted.setdefault(entry.producer_id, (entry, False))
