"""Partitions that rest in a fetch session: what rouses them, and what their follower's fetches count for meanwhile."""

from __future__ import annotations

from stage import Stage, assignment

from penstock.replication import reads
from penstock.replication.news import News
from penstock.replication.roles import Bound
from penstock.testing.simulation.disk import Entry


class Asked:
    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.turn = 0


class Session:
    """Broker 2's session with one partition in it."""

    def __init__(self, stage: Stage, broker_id: int = 2) -> None:
        self.stage, self.broker_id = stage, broker_id
        self.news = News[Asked]()
        self.news.bound, self.news.replica_id = Bound.LOG_END, broker_id
        self.asked = Asked(0)
        self.news.look_at(self.asked)

    def fetch(self, offset: int | None = None) -> int:
        """How many partitions were looked at."""
        if offset is not None:
            self.asked.offset = offset
            self.news.look_at(self.asked)
        self.news.last_fetch_ms = self.stage.clock.monotonic() * 1000
        due = self.news.due()
        for asked in due:
            fetched = self.stage.fetch_from(self.broker_id, asked.offset)
            self.news.answered(asked, self.stage.partition, fetched)
        return len(due)


def test_a_partition_with_nothing_to_say_is_looked_at_once() -> None:
    stage = Stage()
    session = Session(stage)
    assert [session.fetch(), session.fetch(), session.fetch()] == [1, 0, 0]
    stage.append()
    assert [session.fetch(), session.fetch()] == [1, 1], "there are bytes that it has not taken"
    assert [session.fetch(1), session.fetch()] == [1, 0]


def test_the_high_watermark_the_log_start_the_isr_and_the_leader_are_news() -> None:
    stage = Stage()
    two, three = Session(stage, 2), Session(stage, 3)
    stage.append()
    two.fetch(1)
    assert two.fetch() == 0
    three.fetch(1)
    assert stage.high_watermark == 1
    assert two.fetch() == 1, "the high watermark moved"
    stage.partition.delete_records(1)
    assert [two.fetch(), two.fetch()] == [1, 0]
    stage.partition.become_leader(assignment(partition_epoch=1, isr=(1, 3)))
    assert [two.fetch(), two.fetch()] == [1, 1], "who is not in the ISR asks anew each time"
    stage.partition.become_leader(assignment(partition_epoch=2))
    assert [two.fetch(), two.fetch()] == [1, 0]
    stage.partition.become_follower(assignment(leader=3, leader_epoch=1, partition_epoch=3))
    assert [two.fetch(), two.fetch()] == [1, 1], "an error is repeated"
    assert not stage.partition.resting_readers


def test_each_fetch_of_a_session_is_a_sign_of_life_for_what_rests_in_it() -> None:
    stage = Stage()
    sessions = [Session(stage, 2), Session(stage, 3)]
    for session in sessions:
        session.fetch()
    for _ in range(10):
        stage.clock.advance(20_000)
        sessions[0].fetch()
    stage.append()
    assert stage.partition.shrink_isr(), "the silent one has not fetched for longer than the lag time"
    assert stage.proposals[-1].isr == (1, 2)
    assert stage.partition.followers[2].last_caught_up_ms == stage.clock.monotonic() * 1000


def test_a_session_of_an_earlier_life_counts_no_longer() -> None:
    stage = Stage()
    earlier = Session(stage)
    earlier.fetch()
    stage.brokers.epochs[2] += 1
    again = Session(stage)
    again.fetch()
    assert earlier.asked not in stage.partition.resting_readers
    assert stage.partition.followers[2].rests_in is again.news


def test_an_ended_session_leaves_nothing_behind() -> None:
    stage = Stage()
    session = Session(stage)
    session.fetch()
    assert stage.partition.resting_readers
    session.news.end()
    assert not stage.partition.resting_readers
    assert stage.partition.followers[2].rests_in is None
    assert [session.fetch(), session.fetch()] == [1, 1]


def test_a_long_poll_wakes_for_what_rested_when_it_was_parked() -> None:
    stage = Stage()
    session = Session(stage)
    session.fetch()
    woken: list[None] = []
    stage.parking.until_readable([], 1, 500, lambda: woken.append(None), session.news)
    stage.partition.stir()
    assert not woken, "stirred, but nothing to read"
    stage.append()
    assert woken
    assert not session.news.waits
    assert not stage.partition.fetch_waits


class Consumer:
    """A consumer's session with one partition, on whatever replica the stage has."""

    def __init__(self, stage: Stage, bound: int) -> None:
        self.stage, self.bound = stage, bound
        self.news = News[Asked]()
        self.news.bound = bound
        self.asked = Asked(0)
        self.news.look_at(self.asked)

    def fetch(self) -> list[reads.Fetched]:
        """What the partitions say that were looked at."""
        answers = []
        for asked in self.news.due():
            answers.append(reads.fetch(self.stage.partition, asked.offset, 10_000, self.bound, leader_only=False))
            self.news.answered(asked, self.stage.partition, answers[-1])
        return answers


def test_what_replication_brings_is_news_for_consumers_of_a_follower() -> None:
    """They rest on a replica that nobody appends to as a leader."""
    follower = Stage(leader=2)
    consumer = Consumer(follower, Bound.HIGH_WATERMARK)
    assert [len(consumer.fetch()), len(consumer.fetch())] == [1, 0]
    follower.log.append_as_follower(Entry(0, 0, 1, 0, 1, 0).encode())
    follower.log.write_staged()
    follower.partition.follower_advanced()
    (answer,) = consumer.fetch()
    assert answer.region is None, "in the log, but not committed"
    assert consumer.fetch() == []
    follower.log.set_high_watermark(1)
    follower.partition.follower_advanced()
    (answer,) = consumer.fetch()
    assert answer.size


def test_a_follower_that_left_the_isr_is_asked_at_every_fetch_whether_it_is_back() -> None:
    stage = Stage()
    session = Session(stage)
    stage.append()
    stage.clock.advance(31_000)
    assert stage.partition.shrink_isr()
    session.fetch(1)
    assert session.fetch() == 0, "a member that has everything rests"
    stage.partition.isr_recorded(stage.proposals[-1], (1, 3), 0, 1)
    assert session.fetch() == 1
    assert stage.proposals[-1].isr == (1, 3, 2), "its fetch is the one that lets it join"


def test_what_moves_between_the_read_and_the_answer_is_looked_at_again() -> None:
    """A large fetch gives others a turn while it is read: what came meanwhile would rest untold."""
    stage = Stage()
    session = Session(stage)
    found_nothing = stage.fetch_from(2, 0)
    stage.append()
    session.news.answered(session.asked, stage.partition, found_nothing)
    assert session.fetch() == 1, "the log has grown"

    stage = Stage()
    two, three = Session(stage, 2), Session(stage, 3)
    stage.append()
    two.fetch(1), three.fetch(1)
    two.news.look_at(two.asked)
    before = stage.fetch_from(2, 1)
    stage.partition.delete_records(1)
    two.news.answered(two.asked, stage.partition, before)
    assert two.fetch() == 1, "the log begins later"
