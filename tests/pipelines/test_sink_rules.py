"""Rules of the exactly-once sink that a good day never asks for: each story kills a wrong rule that others let live."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.pipelines.spark import sink_decisions as decisions
from penstock.pipelines.spark import sink_journal as journal
from penstock.pipelines.spark import sink_transactions as transactions
from penstock.pipelines.spark.sink_journal import SinkState
from penstock.pipelines.spark.sink_transactions import Transaction, TransactionLost
from penstock.testing.broker_process import BrokerProcess
from tests.pipelines.test_sink_protocol import Story


@pytest.fixture
def story(broker: BrokerProcess, new_topic: Callable[..., str], read_topic: Callable[..., list[Any]]) -> Story:
    return Story(broker.bootstrap, new_topic(partitions=2), read_topic)


def finish(story: Story, transaction: Transaction) -> None:
    async def run(client: Any) -> None:
        implicit = await transactions.uses_implicit_partitions(client)
        await transactions.finish(client, transaction, implicit=implicit)

    story.client.run(run)


def test_a_decided_transaction_that_was_aborted_is_not_called_written(story: Story) -> None:
    done = story.task(0, "a")
    story.end(done, commit=False)
    assert done.transaction is not None
    with pytest.raises(TransactionLost, match="its rows are lost"):
        finish(story, done.transaction)
    assert story.visible() == []


def test_a_transaction_of_the_same_id_is_not_committed_in_its_place(story: Story) -> None:
    done = story.task(0, "a")
    assert done.transaction is not None
    newer = story.client.run(lambda inner: transactions.open_transaction(inner, done.transaction.transactional_id))

    async def write(client: Any) -> None:
        implicit = await transactions.uses_implicit_partitions(client)
        await transactions.write_record(client, newer, (story.topic, 0), "k", b"not decided", implicit=implicit)

    story.client.run(write)
    with pytest.raises(TransactionLost):
        finish(story, done.transaction)
    assert story.visible() == []
    assert story.open() == [newer.transactional_id], "it is not ours to end"


def test_a_decision_that_was_undone_is_not_followed(story: Story) -> None:
    name = story.query

    async def undone(client: Any) -> SinkState | None:
        await journal.ensure_topic(client)
        implicit = await transactions.uses_implicit_partitions(client)
        owner = await decisions.take_over(client, name)
        await journal.write(client, owner, name, SinkState(batch=3).to_json(), implicit=implicit)
        await transactions.end_transaction(client, owner, commit=False, implicit=implicit)
        return await journal.state_of(client, name, settled=True)

    assert story.client.run(undone) is None


def test_a_driver_that_was_replaced_learns_that_its_transaction_is_lost(story: Story) -> None:
    async def replaced(client: Any) -> None:
        implicit = await transactions.uses_implicit_partitions(client)
        first = await decisions.take_over(client, story.query)
        await decisions.take_over(client, story.query)
        await transactions.end_transaction(client, first, commit=True, implicit=implicit)

    with pytest.raises(TransactionLost, match="no longer ours"):
        story.client.run(replaced)
