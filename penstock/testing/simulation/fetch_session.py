"""What a simulated leader remembers of a follower's fetches: the fetch sessions of the real broker, in small."""

from __future__ import annotations

from typing import Any

from penstock.replication.news import News
from penstock.replication.roles import Bound


class SimAsked:
    """One partition of a fetch session."""

    def __init__(self, key: tuple[Any, int], item: Any, turn: int) -> None:
        self.key = key
        self.item = item
        self.offset: int = item.fetch_offset
        self.turn = turn
        self.told = (-1, -1)  # high watermark, log start


class SimFetchSession:
    """What a leader remembers of a follower's fetches."""

    def __init__(self) -> None:
        self.asked: dict[tuple[Any, int], SimAsked] = {}
        self.news = News[SimAsked]()
        self.news.bound = Bound.LOG_END
        self.image: Any = None

    def name(self, key: tuple[Any, int], item: Any) -> None:
        known = self.asked.get(key)
        if known is None:
            known = self.asked[key] = SimAsked(key, item, len(self.asked))
        known.item, known.offset = item, item.fetch_offset
        self.news.look_at(known)

    def forget(self, key: tuple[Any, int]) -> None:
        known = self.asked.pop(key, None)
        if known is not None:
            self.news.forget(known)
