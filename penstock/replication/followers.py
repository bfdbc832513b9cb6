"""What a leader knows about one of its followers: how far its log reaches and when it was last caught up.

Times are milliseconds of a monotonic clock: a stepped wall clock must neither empty nor fill an ISR.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.replication.news import News

UNKNOWN_OFFSET = -1


class Follower:
    """Progress of one remote replica, as seen by the leader through its fetches."""

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "last_caught_up_ms",
        "last_fetch_leader_end_offset",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
        "rests_in",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.last_fetch_leader_end_offset = 0
        self.last_fetch_ms: float = 0.0
        self.last_caught_up_ms: float = -1e15
        self.broker_epoch = -1
        self.rests_in: News[Any] | None = None  # the session whose fetches are signs of life of this replica, too

    def reset(self, now_ms: float, leader_end_offset: int, in_isr: bool, new_leader: bool) -> None:
        """A leader epoch begins. Members of the ISR get one lag time to show themselves."""
        if new_leader:
            self.log_end_offset = UNKNOWN_OFFSET
            self.log_start_offset = UNKNOWN_OFFSET
            self.broker_epoch = -1
        self.last_fetch_leader_end_offset = leader_end_offset if in_isr else 0
        self.last_fetch_ms = now_ms if in_isr else 0.0
        self.last_caught_up_ms = now_ms if in_isr else -1e15

    def fetched(
        self, fetch_offset: int, log_start_offset: int, leader_end_offset: int, now_ms: float, broker_epoch: int
    ) -> None:
        """A fetch arrived: its offset is the follower's log end, all before it is in the follower's log."""
        if self.rests_in is not None:
            self.rouse()
        if fetch_offset >= leader_end_offset:
            if now_ms > self.last_caught_up_ms:
                self.last_caught_up_ms = now_ms
        elif fetch_offset >= self.last_fetch_leader_end_offset and self.last_fetch_ms > self.last_caught_up_ms:
            # It has all that existed at its previous fetch: it was caught up then.
            self.last_caught_up_ms = self.last_fetch_ms
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.last_fetch_leader_end_offset = leader_end_offset
        self.last_fetch_ms = now_ms
        self.broker_epoch = broker_epoch

    def rouse(self) -> None:
        """Nothing was appended while it rested: it was caught up at every fetch of its session."""
        self.last_caught_up_ms = self.caught_up_ms
        session, self.rests_in = self.rests_in, None
        if session is not None and session.last_fetch_ms > self.last_fetch_ms:
            self.last_fetch_ms = session.last_fetch_ms

    @property
    def caught_up_ms(self) -> float:
        session = self.rests_in
        return self.last_caught_up_ms if session is None else max(self.last_caught_up_ms, session.last_fetch_ms)

    def caught_up(self, leader_end_offset: int, now_ms: float, lag_time_max_ms: float) -> bool:
        return self.log_end_offset == leader_end_offset or now_ms - self.caught_up_ms <= lag_time_max_ms
