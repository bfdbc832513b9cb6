"""The general way beside each fetch that takes the short one: both must say the same, byte for byte."""

from __future__ import annotations

import os
from typing import Any

import pytest

from penstock.broker.fetch import usual as usual_fetch
from penstock.broker.fetch.codec import encode_fetch
from penstock.broker.fetch.usual import UsualFetch
from penstock.broker.network.outbox import FileRegion
from penstock.replication import reads


class GeneralWay:
    """`served` counts answers with records that were compared, `empty` looks that found nothing; `by_followers` both of
    followers."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.served = self.empty = self.by_followers = 0
        self.differences: list[str] = []
        read = UsualFetch._read

        def both(usual: UsualFetch, offset: int) -> Any:
            found = read(usual, offset)
            if found is not usual_fetch._UNUSUAL:
                self.compare(usual, offset, found)
            return found

        patch.setattr(UsualFetch, "_read", both)

    def compare(self, usual: Any, offset: int, found: Any) -> None:
        if usual.follows:
            self.by_followers += 1
            asked = usual.asked
            fetched = reads.follower_fetch(
                usual._partition,
                usual._replica_id,
                usual._replica_epoch,
                offset,
                asked.log_start_offset,
                usual._limit,
                current_leader_epoch=asked.current_leader_epoch,
                last_fetched_epoch=asked.last_fetched_epoch,
                update=False,
            )
        else:
            fetched = reads.fetch(usual._partition, offset, usual._limit, usual._bound, leader_only=False)
        if found is None:
            self.empty += 1
            if fetched.error or fetched.size:
                self.differences.append(f"{offset}: nothing, but {fetched.error} {fetched.size}")
            return
        self.served += 1
        version = usual._shape.version
        parts = encode_fetch(version, 0, 0, 0, [(usual.asked, fetched)])
        whole = b"".join(
            os.pread(part.fd, part.length, part.position) if type(part) is FileRegion else part for part in parts
        )
        if usual._shape.answer(0, 0, found[1]) != whole or found[2] != fetched.size:
            self.differences.append(f"{offset}: version {version} differs")


@pytest.fixture
def general_way(monkeypatch: pytest.MonkeyPatch) -> GeneralWay:
    return GeneralWay(monkeypatch)
