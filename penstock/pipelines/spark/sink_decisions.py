"""The durable word on which transactions make up a batch: one record per sink, replaced with every batch.

A decision is made by a transaction of its own, under the id `<name>-driver`, that holds the sink's new state
(`sink_journal`). Two drivers of one sink cannot both decide: opening the id fences the one before, and whoever opened
it last reads everything that was decided before. What was decided first stays.

A sink that is reset or deleted *ends*: its last state says so for good, late attempts take their rows back by
themselves, what was decided is committed and the rest is aborted. Every step may be repeated.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from penstock.client.client import Client
from penstock.client.errors import KafkaError
from penstock.pipelines.spark import sink_journal as journal
from penstock.pipelines.spark import sink_legacy as legacy
from penstock.pipelines.spark import sink_transactions as transactions
from penstock.pipelines.spark.sink_journal import SinkState
from penstock.pipelines.spark.sink_transactions import Transaction, TransactionLost

log = logging.getLogger(__name__)

_DECISION_TIMEOUT_MS: Final = 15_000


class AnotherDriver(Exception):
    """Another driver of the same query has decided; this one must stop."""


async def state_of(client: Client, name: str, *, settled: bool) -> SinkState:
    """What is decided; `settled` waits for a decision that is under way."""
    found = await journal.state_of(client, name, settled=settled)
    return found or await legacy.state_of(client, name) or SinkState()


async def take_over(client: Client, name: str) -> Transaction:
    """Become the only one who can decide for the sink; a decision that was under way is finished or undone by this."""
    return await transactions.open_transaction(client, f"{name}-driver", timeout_ms=_DECISION_TIMEOUT_MS)


async def decide(
    client: Client, owner: Transaction, name: str, batch_id: int, chosen: Sequence[Transaction], *, implicit: bool
) -> SinkState:
    """Write the decision and wait until everybody can see it. Fenced by another driver: AnotherDriver."""
    before = await state_of(client, name, settled=False)
    decided = replace(before, batch=batch_id, transactions=tuple(chosen))
    await _put(client, owner, name, decided, implicit=implicit)
    seen = await state_of(client, name, settled=True)
    if seen.batch != batch_id or seen.ended:
        raise AnotherDriver(f"query {name}: batch {seen.batch} is decided, although batch {batch_id} was just written")
    return decided


async def _put(client: Client, owner: Transaction, name: str, state: SinkState, *, implicit: bool) -> None:
    try:
        await journal.write(client, owner, name, state.to_json(), implicit=implicit)
        await transactions.end_transaction(client, owner, commit=True, implicit=implicit)
    except (TransactionLost, KafkaError) as error:
        if isinstance(error, KafkaError) and error.code not in transactions.FENCED:
            raise
        raise AnotherDriver(f"another driver of query {name} has taken over while batch {state.batch} ended") from error


async def register(client: Client, name: str, pipeline: str, place: str) -> SinkState:
    """Before the first transaction opens: whose it will be. Also where a pointer of an older version is taken over."""
    await journal.ensure_topic(client)
    known = await journal.state_of(client, name)
    if known is not None and (known.ended or (known.pipeline, known.place) == (pipeline, place)):
        return known
    owner = await take_over(client, name)
    state = replace(await state_of(client, name, settled=True), pipeline=pipeline, place=place)
    if not state.ended:
        await _put(client, owner, name, state, implicit=await transactions.uses_implicit_partitions(client))
        await journal.state_of(client, name, settled=True)
    return state


# --- endings ---


async def end(client: Client, name: str, pipeline: str | None = None) -> int:
    """The sink is over: nothing is decided any more, nothing stays open. Returns how many transactions were open."""
    await journal.ensure_topic(client)
    owner = await take_over(client, name)
    state = await state_of(client, name, settled=True)
    if not state.ended:
        state = replace(state, ended=True, pipeline=state.pipeline or pipeline)
        await _put(client, owner, name, state, implicit=await transactions.uses_implicit_partitions(client))
        await journal.state_of(client, name, settled=True)
    return await settle(client, name, state)


async def settle(client: Client, name: str, state: SinkState) -> int:
    """Commit what is decided, abort the rest."""
    implicit = await transactions.uses_implicit_partitions(client)
    is_open = await transactions.open_under_prefix(client, f"{name}-")
    decided = [item for item in is_open if item in state.transactions]
    await asyncio.gather(*(transactions.finish(client, item, implicit=implicit) for item in decided))
    await transactions.abort_all(client, [item for item in is_open if item not in decided], implicit=implicit)
    return len(is_open)


async def ended_names(client: Client, names: Sequence[str]) -> list[str]:
    states = [await journal.state_of(client, name) for name in names]
    return [name for name, state in zip(names, states, strict=True) if state is not None and state.ended]


async def settle_ended(client: Client, pipeline: str) -> int:
    """Finish endings that a crash has interrupted: of sinks that have ended already."""
    known = await journal.all_states(client)
    is_open = await transactions.open_under_prefix(client, f"penstock.{pipeline}.")
    count = 0
    for name, state in known.items():
        has_left = any(item.transactional_id.startswith(f"{name}-") for item in is_open)
        if has_left and state.ended and state.pipeline == pipeline:
            count += await settle(client, name, state)
    return count


async def names_of(client: Client, pipeline: str) -> dict[str, SinkState]:
    """The sinks of a pipeline that have not ended."""
    known = await journal.all_states(client)
    return {name: state for name, state in known.items() if state.pipeline == pipeline and not state.ended}
