"""Which transactional batches need a question to their coordinator first, and which are refused (KIP-890, KIP-939).

Nothing here outlives a leadership: a new leader trusts no open transaction before its coordinator was asked once,
because somebody may have taken it over since (`keep prepared`) and have told only the leader of then.
"""

from __future__ import annotations


class VerificationGuard:
    """Identity of one verification attempt: an answer to an older attempt carries another guard."""

    __slots__ = ()


class _Attempt:
    __slots__ = ("epoch", "guard", "lowest_sequence", "supports_epoch_bump", "timestamp_ms")

    def __init__(self, guard: VerificationGuard, epoch: int, sequence: int, bump: bool, timestamp_ms: int) -> None:
        self.guard = guard
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.supports_epoch_bump = bump
        self.timestamp_ms = timestamp_ms


class Verifications:
    """By producer id: the running attempt, whether its open transaction is proven, and what of it is fenced."""

    __slots__ = ("_fenced", "_proven", "_running")

    def __init__(self) -> None:
        self._running: dict[int, _Attempt] = {}
        self._proven: set[int] = set()
        self._fenced: dict[int, tuple[int, int]] = {}  # newest fenced epoch, and since when

    # -- attempts

    def start(
        self, producer_id: int, epoch: int, sequence: int, supports_epoch_bump: bool, now_ms: int
    ) -> VerificationGuard:
        """The guard of the running attempt of this producer and epoch, or a new one."""
        known = self._running.get(producer_id)
        if known is None or known.epoch < epoch or (not known.supports_epoch_bump and supports_epoch_bump):
            known = _Attempt(VerificationGuard(), epoch, sequence, supports_epoch_bump, now_ms)
            self._running[producer_id] = known
        elif 0 <= sequence < known.lowest_sequence:
            known.lowest_sequence = sequence
        return known.guard

    def is_running(self, producer_id: int, guard: VerificationGuard | None) -> bool:
        """Whether `guard` is that of the running attempt."""
        known = self._running.get(producer_id)
        return known is not None and known.guard is guard

    def earliest(self, producer_id: int) -> tuple[int, bool] | None:
        """The lowest sequence that the running attempt was asked for, and whether its client gets a new epoch with
        every end."""
        known = self._running.get(producer_id) if self._running else None
        return None if known is None else (known.lowest_sequence, known.supports_epoch_bump)

    def forget(self, producer_id: int) -> None:
        self._running.pop(producer_id, None)

    def succeeded(self, producer_id: int) -> None:
        """A verified batch goes in: the transaction that it belongs to needs no further question."""
        self._running.pop(producer_id, None)
        self._proven.add(producer_id)

    def ended(self, producer_id: int, epoch: int) -> None:
        """A marker of this epoch is in the log. It ends the running attempt too, unless that belongs to the next
        transaction already: a client that gets a new epoch with every end may ask under the marker's own epoch before
        the marker arrives here."""
        known = self._running.get(producer_id)
        if known is not None and not (known.supports_epoch_bump and known.epoch == epoch):
            del self._running[producer_id]
        self._proven.discard(producer_id)
        self._fenced.pop(producer_id, None)

    # -- trust

    def is_proven(self, producer_id: int) -> bool:
        """Whether the producer's open transaction was verified since we lead."""
        return producer_id in self._proven

    def leadership_begins(self) -> None:
        """What an earlier leadership asked may be answered yet, with what has not been so since."""
        self._proven.clear()
        self._running.clear()

    def fence(self, producer_id: int, epoch: int, now_ms: int) -> None:
        """Nothing more of this producer up to this epoch, not even what is being verified now."""
        newest, _ = self._fenced.get(producer_id, (epoch, 0))
        self._fenced[producer_id] = max(epoch, newest), now_ms
        self._proven.discard(producer_id)
        known = self._running.get(producer_id)
        if known is not None and known.epoch <= epoch:
            del self._running[producer_id]

    def is_fenced(self, producer_id: int, epoch: int) -> bool:
        return bool(self._fenced) and producer_id in self._fenced and epoch <= self._fenced[producer_id][0]

    def expire(self, before_ms: int) -> None:
        """Forget what nobody has spoken of since: whoever comes again is asked about again."""
        for producer_id, known in list(self._running.items()):
            if known.timestamp_ms <= before_ms:
                del self._running[producer_id]
        for producer_id, (_, since_ms) in list(self._fenced.items()):
            if since_ms <= before_ms:
                del self._fenced[producer_id]

    def clear(self) -> None:
        self._running.clear()
        self._proven.clear()
        self._fenced.clear()
