"""Incremental fetch sessions (KIP-227): what is remembered, what is told, who must go when there is no room."""

from __future__ import annotations

from typing import Any

import pytest
from raw_client import RawClient, batch, ensure_topic, fetch_request, produce_request

import penstock
from penstock.broker.fetch.codec import FetchPartition, FetchRequest
from penstock.broker.fetch.sessions import FetchSessionCache, next_epoch
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode
from penstock.replication.reads import Fetched


def request(*partitions: tuple[str, int], session: tuple[int, int] = (0, 0), version: int = 12, **fields: Any) -> Any:
    made = FetchRequest(version)
    made.session_id, made.session_epoch = session
    made.partitions = [FetchPartition(name.encode(), index, -1, 0, -1, -1, 100) for name, index in partitions]
    for name, value in fields.items():
        setattr(made, name, value)
    return made


class TestCache:
    def test_a_session_is_opened_continued_and_closed(self) -> None:
        cache = FetchSessionCache(10)
        opened = cache.context(request(("a", 0), ("b", 1)), 0.0)
        assert opened.session_id > 0
        assert not opened.incremental
        went_on = cache.context(request(session=(opened.session_id, 1)), 1.0)
        assert went_on.incremental
        assert [(p.name, p.index) for p in went_on.partitions()] == [(b"a", 0), (b"b", 1)]
        cache.context(request(session=(opened.session_id, -1)), 2.0)
        assert not cache.sessions

    def test_wrong_ids_and_epochs_are_told_apart(self) -> None:
        cache = FetchSessionCache(10)
        session_id = cache.context(request(("a", 0)), 0.0).session_id
        assert cache.context(request(session=(session_id + 1, 1)), 0.0).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert cache.context(request(session=(session_id, 2)), 0.0).error == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        by_id = request(session=(session_id, 1), version=13)
        assert cache.context(by_id, 0.0).error == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        assert cache.context(request(session=(session_id, 1)), 0.0).error == 0

    def test_partitions_are_added_changed_and_forgotten(self) -> None:
        cache = FetchSessionCache(10)
        session_id = cache.context(request(("a", 0), ("b", 0)), 0.0).session_id
        change = request(("a", 0), ("c", 0), session=(session_id, 1), forgotten=[(b"b", 0)])
        change.partitions[0].offset = 77
        went_on = cache.context(change, 0.0)
        assert [(p.name, p.offset) for p in went_on.partitions()] == [(b"a", 77), (b"c", 0)]
        emptied = cache.context(request(session=(session_id, 2), forgotten=[(b"a", 0), (b"c", 0)]), 0.0)
        assert (emptied.session_id, emptied.all_partitions) == (0, [])
        assert not cache.sessions

    def test_consumers_sessions_hold_so_many_partitions_together(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("penstock.broker.fetch.sessions.MOST_PARTITIONS", 5000)
        cache = FetchSessionCache(10)
        names = [("a", index) for index in range(3000)]
        first = cache.context(request(*names), 0.0)
        assert first.session_id
        assert cache.context(request(*names), 0.0).session is None
        assert cache.context(request(*names, replica_id=2), 0.0).session is not None
        same = cache.context(request(*names, session=(first.session_id, 1)), 0.0)
        assert same.session is first.session  # what it names again is no more than before
        others = [("b", index) for index in range(3000)]
        grown = cache.context(request(*others, session=(first.session_id, 2)), 0.0)
        assert grown.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert first.session_id not in cache.sessions

    def test_a_session_cannot_grow_beyond_that_by_small_steps(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("penstock.broker.fetch.sessions.MOST_PARTITIONS", 50)
        cache = FetchSessionCache(10)
        session_id = cache.context(request(("a", 0)), 0.0).session_id
        errors = [cache.context(request(("a", step), session=(session_id, step)), 0.0).error for step in range(1, 60)]
        assert errors == [0] * 49 + [ErrorCode.FETCH_SESSION_ID_NOT_FOUND] * 10
        assert cache.partition_count == 0 and not cache.sessions

    def test_names_that_no_topic_can_have_count_by_their_length(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("penstock.broker.fetch.sessions.MOST_PARTITIONS", 50)
        cache = FetchSessionCache(10)
        assert cache.context(request(("x" * 30_000, 0)), 0.0).session is None
        assert cache.context(request(("x" * 249, 0)), 0.0).session is not None
        assert cache.partition_count == 1

    def test_epochs_wrap_to_one(self) -> None:
        assert next_epoch(0x7FFFFFFF) == 1

    def test_only_changes_are_told_and_readers_take_turns(self) -> None:
        cache = FetchSessionCache(10)
        session = cache.context(request(("a", 0), ("b", 0)), 0.0).session
        assert session is not None
        a, b = session.partitions.values()

        class Region:
            length = 5

        def told(*results: tuple[FetchPartition, Fetched]) -> list[bytes]:
            return [p.name for p, _ in session.changed(list(results))]

        quiet = Fetched(0, 3, 3, 0)
        told((a, quiet), (b, quiet))
        assert told((a, quiet), (b, quiet)) == []
        assert told((a, Fetched(0, 4, 4, 0)), (b, quiet)) == [b"a"]
        assert told((a, Fetched(0, 4, 4, 1)), (b, quiet)) == [b"a"]
        assert told((a, Fetched(0, 4, 4, 1, Region())), (b, quiet)) == [b"a"]
        assert [p.name for p in session.partitions.values()] == [b"b", b"a"]
        assert told((b, Fetched(6)), (a, Fetched(0, 4, 4, 1))) == [b"b"]
        assert told((b, quiet), (a, Fetched(0, 4, 4, 1))) == [b"b"]  # the recovery is told too

    def test_a_full_cache_keeps_young_sessions_and_gives_up_idle_ones(self) -> None:
        cache = FetchSessionCache(2)
        first = cache.context(request(("a", 0)), 0.0).session_id
        cache.context(request(("a", 0)), 1.0)
        assert cache.context(request(("a", 0)), 2.0).session_id == 0
        newcomer = cache.context(request(("a", 0)), 130.0).session_id
        assert newcomer > 0
        assert first not in cache.sessions

    def test_followers_displace_consumers_but_not_the_reverse(self) -> None:
        cache = FetchSessionCache(1)
        consumer = cache.context(request(("a", 0)), 0.0).session_id
        follower = cache.context(request(("a", 0), replica_id=2), 1.0).session_id
        assert consumer not in cache.sessions
        assert follower in cache.sessions
        assert cache.context(request(("a", 0)), 2.0).session_id == 0

    def test_without_slots_everything_works_without_sessions(self) -> None:
        cache = FetchSessionCache(0)
        context = cache.context(request(("a", 0)), 0.0)
        assert (context.session_id, len(context.all_partitions)) == (0, 1)


@pytest.mark.parametrize("version", [7, 11, 12, 13, 17])
def test_a_session_on_the_wire(broker: penstock.Broker, topic: str, version: int) -> None:
    topic_id = ensure_topic(broker.port, topic)
    with RawClient(broker.port) as client:
        opened = client.call("fetch", version, fetch_request(topic, 0, session_epoch=0, topic_id=topic_id))
        assert opened.session_id > 0
        nothing = messages.api("fetch").Request(
            session_id=opened.session_id, session_epoch=1, max_wait_ms=0, topics=[], max_bytes=1 << 20
        )
        assert client.call("fetch", version, nothing).responses == []
        client.call("produce", 9, produce_request(topic, batch(b"news")))
        nothing.session_epoch = 2
        answer = client.call("fetch", version, nothing)
        assert b"news" in bytes(answer.responses[0].partitions[0].records)
        nothing.session_epoch = 2
        assert client.call("fetch", version, nothing).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
