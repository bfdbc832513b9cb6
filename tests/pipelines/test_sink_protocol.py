"""The exactly-once protocol of the sink, phase by phase: who dies where, and what a read_committed reader then sees.

Spark itself is not needed: a test plays its driver and its tasks, with the real code, against a real broker.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructType

from penstock.pipelines.spark import sink_decisions as decisions
from penstock.pipelines.spark import sink_legacy as legacy
from penstock.pipelines.spark import sink_transactions as transactions
from penstock.pipelines.spark.clients import client_for
from penstock.pipelines.spark.sink import MARKERS, TWO_PHASE, SinkProtocol, TaskDone
from penstock.pipelines.spark.sink_transactions import TransactionLost
from penstock.testing.broker_process import BrokerProcess

SCHEMA = StructType().add("key", StringType()).add("value", StringType())


def rows(*values: str) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"key": list(values), "value": list(values)})


class Story:
    """One query that writes into one topic; `visible` is what an ordinary read_committed consumer gets."""

    def __init__(self, bootstrap: str, topic: str, read_topic: Callable[..., list[Any]]) -> None:
        self.topic = topic
        self.bootstrap = bootstrap
        self.query = uuid.uuid4().hex
        self.protocol = SinkProtocol.make({"kafka.bootstrap.servers": bootstrap, "topic": topic}, SCHEMA, False)
        self._read_topic = read_topic
        self.client = client_for(self.protocol.options.properties)

    def task(self, batch_id: int, *values: str, partition: int = 0) -> TaskDone:
        return self.protocol.write(self.query, batch_id, partition, rows(*values))

    def visible(self) -> list[str]:
        return sorted(message.value().decode() for message in self._read_topic(self.topic, self.bootstrap))

    def open(self) -> list[str]:
        found = self.client.run(lambda inner: transactions.open_under_prefix(inner, f"{self.query}-"))
        return [item.transactional_id for item in found]

    def decide_only(self, batch_id: int, *done: TaskDone) -> None:
        """A driver that dies right after its decision is durable."""
        chosen = [item.transaction for item in done if item.transaction is not None]

        async def run(client: Any) -> None:
            implicit = await transactions.uses_implicit_partitions(client)
            owner = await decisions.take_over(client, self.query)
            await decisions.decide(client, owner, self.query, batch_id, chosen, implicit=implicit)

        self.client.run(run)

    def end_sink(self) -> int:
        return self.client.run(lambda inner: decisions.end(inner, self.query))

    def leave_old_decision(self, batch_id: int, done: TaskDone) -> None:
        """As version 0.1.0 wrote it: a record, and a group's offset that points at it."""
        import json

        from confluent_kafka import Consumer, Producer, TopicPartition

        assert done.transaction is not None
        entry = dataclasses.astuple(done.transaction)
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0})
        written: list[int] = []
        value = json.dumps({"query": self.query, "batch": batch_id, "transactions": [entry]})
        producer.produce(
            legacy.TOPIC, value, self.query, 0, on_delivery=lambda _error, message: written.append(message.offset())
        )
        assert producer.flush(30) == 0
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": legacy.group_of(self.query)})
        pointer = TopicPartition(legacy.TOPIC, 0, written[0], metadata=str(batch_id))
        consumer.commit(offsets=[pointer], asynchronous=False)
        consumer.close()
        legacy._absent.clear()

    def delete_group(self) -> None:
        from confluent_kafka.admin import AdminClient

        group = legacy.group_of(self.query)
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        admin.delete_consumer_groups([group])[group].result(30)
        legacy._absent.clear()

    def end(self, done: TaskDone, *, commit: bool) -> None:
        async def run(client: Any) -> None:
            implicit = await transactions.uses_implicit_partitions(client)
            assert done.transaction is not None
            await transactions.end_transaction(client, done.transaction, commit=commit, implicit=implicit)

        self.client.run(run)


@pytest.fixture
def story(broker: BrokerProcess, new_topic: Callable[..., str], read_topic: Callable[..., list[Any]]) -> Story:
    made = Story(broker.bootstrap, new_topic(partitions=2), read_topic)
    assert made.protocol.mode == TWO_PHASE
    return made


def test_a_batch_becomes_visible_as_a_whole_when_the_driver_commits(story: Story) -> None:
    first, second = story.task(0, "a", "b"), story.task(0, "c", partition=1)
    assert len(story.open()) == 2
    story.protocol.commit([first, second], 0)
    assert story.visible() == ["a", "b", "c"]
    assert story.open() == []


def test_a_task_that_fails_takes_its_rows_back(story: Story) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from rows("a", "b")
        raise OSError("executor lost")

    with pytest.raises(OSError, match="executor lost"):
        story.protocol.write(story.query, 0, 0, broken())
    story.protocol.commit([story.task(0, "a", "b")], 0)
    assert story.visible() == ["a", "b"]
    assert story.open() == []


def test_an_attempt_that_was_not_chosen_is_aborted(story: Story) -> None:
    lost = story.task(0, "x")  # finished, but its executor was lost before Spark heard of it, or it was speculative
    chosen = story.task(0, "a")
    assert lost.transaction != chosen.transaction
    story.protocol.commit([chosen], 0)
    assert story.visible() == ["a"]
    assert story.open() == []


def test_a_driver_that_died_before_deciding_leaves_nothing_behind(story: Story) -> None:
    story.task(0, "first-try-1"), story.task(0, "first-try-2")
    # The restarted driver runs the batch again; the pipeline is not deterministic, the rows differ.
    story.protocol.commit([story.task(0, "second-try")], 0)
    assert story.visible() == ["second-try"]
    assert story.open() == []


def test_a_driver_that_died_after_deciding_is_completed_by_its_successor(story: Story) -> None:
    first, second = story.task(0, "a"), story.task(0, "b", partition=1)
    story.decide_only(0, first, second)
    repeated = story.task(0, "another")
    assert repeated.rows == 0 and repeated.transaction is None
    story.protocol.commit([repeated], 0)
    assert story.visible() == ["a", "b"]
    assert story.open() == []


def test_a_driver_that_died_half_way_through_ending_is_completed(story: Story) -> None:
    first, second = story.task(0, "a"), story.task(0, "b", partition=1)
    story.decide_only(0, first, second)
    story.end(first, commit=True)
    story.protocol.commit([story.task(0, "again")], 0)
    assert story.visible() == ["a", "b"]


def test_committing_twice_changes_nothing(story: Story) -> None:
    done = story.task(0, "a")
    story.protocol.commit([done], 0)
    story.protocol.commit([done], 0)
    assert story.visible() == ["a"]


def test_abort_after_a_commit_that_failed_half_way_undoes_nothing(story: Story) -> None:
    done = story.task(0, "a")
    story.decide_only(0, done)
    story.protocol.abort([done, None], 0)  # what Spark does when commit() raised
    story.protocol.commit([story.task(0, "again")], 0)
    assert story.visible() == ["a"]


def test_abort_of_an_undecided_batch_removes_its_rows(story: Story) -> None:
    done = story.task(0, "a")
    story.protocol.abort([done, None], 0)
    assert story.open() == []
    story.protocol.commit([story.task(0, "b")], 0)
    assert story.visible() == ["b"]


def test_a_late_attempt_of_a_decided_batch_aborts_itself(story: Story) -> None:
    chosen = story.task(0, "a")

    def slow() -> Iterator[pa.RecordBatch]:
        yield from rows("late")
        story.protocol.commit([chosen], 0)  # decided while this attempt was still reading its input

    with pytest.raises(TransactionLost, match=r"decided without this attempt|no longer ours"):
        story.protocol.write(story.query, 0, 0, slow())
    assert story.visible() == ["a"]
    assert story.open() == []


def test_a_transaction_that_somebody_aborted_fails_the_batch_as_a_whole(story: Story) -> None:
    first, second = story.task(0, "a"), story.task(0, "b", partition=1)
    story.end(second, commit=False)
    with pytest.raises(TransactionLost, match="not open any more"):
        story.protocol.commit([first, second], 0)
    story.protocol.abort([first, second], 0)
    assert story.visible() == []
    story.protocol.commit([story.task(0, "a"), story.task(0, "b")], 0)
    assert story.visible() == ["a", "b"]


def test_of_two_drivers_only_one_decides(story: Story) -> None:
    mine, theirs = story.task(0, "mine"), story.task(0, "theirs")
    story.protocol.commit([theirs], 0)
    story.protocol.commit([mine], 0)  # finds the batch decided and goes along
    assert story.visible() == ["theirs"]
    assert story.open() == []
    story.protocol.commit([story.task(1, "next")], 1)
    with pytest.raises(decisions.AnotherDriver, match="another one runs the same checkpoint"):
        story.protocol.commit([mine], 0)
    assert story.visible() == ["next", "theirs"]


def test_a_driver_between_taking_over_and_deciding_is_fenced_by_the_next(story: Story) -> None:
    mine, theirs = story.task(0, "mine"), story.task(0, "theirs")
    slow_driver = story.client.run(lambda inner: decisions.take_over(inner, story.query))
    story.protocol.commit([theirs], 0)

    async def decide(client: Any) -> None:
        implicit = await transactions.uses_implicit_partitions(client)
        assert mine.transaction is not None
        await decisions.decide(client, slow_driver, story.query, 0, [mine.transaction], implicit=implicit)

    with pytest.raises(decisions.AnotherDriver):
        story.client.run(decide)
    assert story.visible() == ["theirs"]


def test_a_driver_of_yesterday_does_not_sweep_the_next_batch(story: Story) -> None:
    done = story.task(0, "a")
    story.protocol.commit([done], 0)
    upcoming = story.task(1, "b")  # the living driver is already at the next batch
    story.protocol.commit([done], 0)  # the other one wakes up and ends its batch once more
    story.protocol.commit([upcoming], 1)
    assert story.visible() == ["a", "b"]


def test_ids_are_used_again_so_their_number_stays_bounded(story: Story) -> None:
    names = set()
    for batch_id in range(6):
        done = story.task(batch_id, f"{batch_id}")
        assert done.transaction is not None
        names.add(done.transaction.transactional_id)
        story.protocol.commit([done], batch_id)
    assert len(names) == 2
    assert story.visible() == [f"{batch_id}" for batch_id in range(6)]


def test_a_batch_that_comes_again_without_rows_leaves_nothing_open(story: Story) -> None:
    story.task(0, "first-try")  # the driver dies here, and what the pipeline computes now is nothing
    empty = story.protocol.write(story.query, 0, 0, iter([pa.RecordBatch.from_pydict({"key": [], "value": []})]))
    story.protocol.commit([empty], 0)
    assert story.open() == []
    story.protocol.commit([story.task(1, "next")], 1)
    assert story.visible() == ["next"]


# --- endings: a pipeline that is reset or deleted ---


def test_an_ending_commits_what_is_decided_and_aborts_the_rest(story: Story) -> None:
    decided, lost = story.task(0, "decided"), story.task(0, "lost", partition=1)
    story.decide_only(0, decided)  # and then the driver was killed
    assert story.end_sink() == 2
    assert story.visible() == ["decided"]
    assert story.open() == []
    assert story.end_sink() == 0  # once more, as after a crash half-way
    assert lost.transaction is not None


def test_after_an_ending_the_old_driver_and_its_late_attempts_change_nothing(story: Story) -> None:
    waiting = story.task(0, "waiting")

    def slow() -> Iterator[pa.RecordBatch]:
        yield from rows("late")
        story.end_sink()  # while this attempt was still reading its input

    with pytest.raises(TransactionLost, match=r"decided without this attempt|no longer ours"):
        story.protocol.write(story.query, 0, 1, slow())
    with pytest.raises(decisions.AnotherDriver, match="reset or deleted"):
        story.protocol.commit([waiting], 0)
    with pytest.raises(decisions.AnotherDriver, match="reset or deleted"):
        story.task(1, "later")
    assert story.open() == [] and story.visible() == []


def test_a_sink_is_known_before_its_first_transaction(story: Story) -> None:
    story.client.run(lambda inner: decisions.register(inner, story.query, "shop", "here"))
    assert list(story.client.run(lambda inner: decisions.names_of(inner, "shop"))) == [story.query]
    story.protocol.commit([story.task(0, "a")], 0)
    known = story.client.run(lambda inner: decisions.names_of(inner, "shop"))[story.query]
    assert (known.batch, known.place) == (0, "here")
    story.end_sink()
    assert story.client.run(lambda inner: decisions.names_of(inner, "shop")) == {}
    assert story.client.run(lambda inner: decisions.ended_names(inner, [story.query, "nobody"])) == [story.query]


# --- what older versions left ---


def test_a_decision_of_an_older_version_is_found_by_its_group_and_taken_over(story: Story) -> None:
    done = story.task(7, "decided then")
    assert done.transaction is not None
    story.leave_old_decision(7, done)
    repeated = story.task(7, "again")
    assert repeated.transaction is None and repeated.rows == 0
    state = story.client.run(lambda inner: decisions.register(inner, story.query, "shop", "here"))
    assert (state.batch, state.transactions) == (7, (done.transaction,))
    # From here on the group may go: what counts is kept in a topic.
    story.delete_group()
    story.protocol.commit([story.task(7, "and again")], 7)
    assert story.visible() == ["decided then"]


def test_nothing_that_a_sink_remembers_is_an_offset_that_could_expire(story: Story) -> None:
    from confluent_kafka.admin import AdminClient

    story.protocol.commit([story.task(0, "a")], 0)
    admin = AdminClient({"bootstrap.servers": story.bootstrap, "log_level": 0})
    groups = [group.group_id for group in admin.list_consumer_groups().result(30).valid]
    assert not [group for group in groups if story.query in group]


def test_an_empty_task_opens_nothing(story: Story) -> None:
    empty = story.protocol.write(story.query, 0, 0, iter([pa.RecordBatch.from_pydict({"key": [], "value": []})]))
    story.protocol.commit([empty], 0)
    assert empty.transaction is None and story.open() == [] and story.visible() == []


def test_prepared_rows_survive_a_broker_killed_with_minus_nine(
    tmp_path: Path, read_topic: Callable[..., list[Any]]
) -> None:
    with BrokerProcess(tmp_path / "broker") as broker:
        story = Story(broker.bootstrap, "out", read_topic)
        done = story.task(0, "a", "b")
        broker.kill()
        broker.start()
        story.decide_only(0, done)
        broker.kill()
        broker.start()
        story.protocol.commit([story.task(0, "again")], 0)
        assert story.visible() == ["a", "b"]


def test_without_two_phase_commit_a_repeated_task_writes_once(story: Story) -> None:
    story.protocol = dataclasses.replace(story.protocol, mode=MARKERS)
    assert story.task(0, "a", "b").rows == 2
    assert story.task(0, "a", "b").rows == 0  # the same task again: its marker says that it is done
    assert story.task(0, "c", partition=1).rows == 1
    assert story.task(1, "d").rows == 1
    assert story.visible() == ["a", "b", "c", "d"]


def test_without_two_phase_commit_a_failed_task_is_repeated(story: Story) -> None:
    story.protocol = dataclasses.replace(story.protocol, mode=MARKERS)

    def broken() -> Iterator[pa.RecordBatch]:
        yield from rows("a")
        raise OSError("executor lost")

    with pytest.raises(OSError, match="executor lost"):
        story.protocol.write(story.query, 0, 0, broken())
    story.task(0, "a")
    assert story.visible() == ["a"]
