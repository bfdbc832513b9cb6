"""Transactions: which are open, what they hold back, which hang, and ending them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.operate import admin
from penstock.operate.errors import ExitCode, UserError, not_found
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.operate.session import Session
    from penstock.pipelines.spark.sink_journal import SinkState

NO_TIMEOUT_MS = 2**31 - 1  # a two-phase transaction: it waits for its decision for ever
Confirm = Callable[[str], None]
"""Asked before something is done; raises when the answer is no."""


def listed(session: Session) -> list[Any]:
    api = messages.api("list_transactions")
    request = api.Request(state_filters=[], producer_id_filters=[], duration_filter=-1, transactional_id_pattern=None)
    found = []
    for node, answer in admin.on_every_broker(session, "list_transactions", request).items():
        if answer.error_code:
            raise admin.refuse(answer.error_code, f"transactions of broker {node}")
        found += answer.transaction_states
    return sorted(found, key=lambda t: t.transactional_id)


def described(session: Session, transactional_id: str) -> Any:
    api = messages.api("describe_transactions")
    request = api.Request(transactional_ids=[transactional_id])
    answer = session.client.call_coordinator("transaction", transactional_id, "describe_transactions", request)
    state = answer.transaction_states[0]
    if state.error_code == 105:
        raise not_found("transaction", transactional_id, (t.transactional_id for t in listed(session)))
    if state.error_code:
        raise admin.refuse(state.error_code, transactional_id)
    return state


def transaction_row(state: Any) -> dict[str, Any]:
    started = state.transaction_start_time_ms
    return {
        "id": state.transactional_id,
        "state": state.transaction_state,
        "producer_id": state.producer_id,
        "epoch": state.producer_epoch,
        "age_seconds": round(time.time() - started / 1000, 1) if started >= 0 else None,
        "timeout_ms": None if state.transaction_timeout_ms == NO_TIMEOUT_MS else state.transaction_timeout_ms,
        "two_phase": state.transaction_timeout_ms == NO_TIMEOUT_MS,
        "partitions": [f"{t.topic}-{p}" for t in state.topics for p in t.partitions],
    }


def held_back(session: Session, row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Per partition of a transaction: how many records read-committed consumers do not get because of it."""
    held = []
    for name in row["partitions"]:
        topic, _, index = name.rpartition("-")
        key = (topic, int(index))
        stable = admin.list_offsets(session, {key: admin.LATEST}, committed=True).get(key, (None, 0))[0]
        end = admin.list_offsets(session, {key: admin.LATEST}).get(key, (None, 0))[0]
        held.append({"partition": name, "last_stable_offset": stable, "end": end,
                     "held_back": end - stable if stable is not None and end is not None else None})  # fmt: skip
    return held


def owner_of(states: Mapping[str, SinkState], transactional_id: str) -> tuple[str, SinkState] | None:
    """(name, state) of the pipeline's or query's sink that a transaction belongs to; None: nobody that is known."""
    names = [name for name in states if transactional_id.startswith(f"{name}-")]
    return (max(names, key=len), states[max(names, key=len)]) if names else None


def decided_by(session: Session, state: Any) -> tuple[str, SinkState] | None:
    """Who has decided that the rows of this transaction count; None: nobody."""
    from penstock.pipelines.spark import sink_journal
    from penstock.pipelines.spark.sink_transactions import Transaction

    owner = owner_of(session.client.run(sink_journal.all_states), state.transactional_id)
    this = Transaction(state.transactional_id, state.producer_id, state.producer_epoch)
    return owner if owner is not None and this in owner[1].transactions else None


def abort_by_id(session: Session, transactional_id: str, confirm: Confirm, *, force: bool = False) -> bool:
    """End an open transaction as its producer would; `confirm` is asked once it is known that there is one.

    One that a pipeline has decided on is committed instead, unless forced: its rows are part of a batch, and whatever
    repeats the batch would find it done. True: it is aborted; False: it is committed.
    """
    state = described(session, transactional_id)
    if state.transaction_state != "Ongoing":
        raise UserError(f"{transactional_id} is {state.transaction_state}: nothing to abort", code=ExitCode.REFUSED)
    decided = None if force else decided_by(session, state)
    if decided is None:
        confirm(f"Abort the transaction of {transactional_id}?")
    else:
        confirm(
            f"{transactional_id} is part of batch {decided[1].batch} of {decided[0]}, which is decided: aborted, its"
            " rows would be lost (--force does it). Commit it?"
        )
    commit = decided is not None
    code = _end(session, transactional_id, (state.producer_id, state.producer_epoch), commit)
    if code == ErrorCode.PRODUCER_FENCED:
        # Somebody took it over prepared (KIP-939): what its records carry is not the pair that may end it.
        code = _end(session, transactional_id, _take_over(session, transactional_id), commit)
    if code:
        raise admin.refuse(code, transactional_id)
    return not commit


def _end(session: Session, transactional_id: str, pair: tuple[int, int], commit: bool) -> int:
    request = messages.api("end_txn").Request(
        transactional_id=transactional_id, producer_id=pair[0], producer_epoch=pair[1], committed=commit
    )
    answer = session.client.call_coordinator("transaction", transactional_id, "end_txn", request, highest_version=4)
    return int(answer.error_code)


def _take_over(session: Session, transactional_id: str) -> tuple[int, int]:
    """The pair that may end an open two-phase transaction from now on; whoever held it is fenced."""
    request = messages.api("init_producer_id").Request(
        transactional_id=transactional_id, transaction_timeout_ms=60_000, enable2_pc=True, keep_prepared_txn=True
    )
    answer = session.client.call_coordinator("transaction", transactional_id, "init_producer_id", request, version=6)
    if answer.error_code:
        raise admin.refuse(answer.error_code, transactional_id)
    return answer.producer_id, answer.producer_epoch


def producers(session: Session, topic: str, partition: int) -> list[Any]:
    api = messages.api("describe_producers")
    request = api.Request(topics=[api.TopicRequest(name=topic, partition_indexes=[partition])])
    answer = session.client.call_leader(topic, partition, "describe_producers", request)
    found = answer.topics[0].partitions[0]
    if found.error_code:
        raise admin.refuse(found.error_code, f"{topic}-{partition}", found.error_message)
    return list(found.active_producers)


def abort_on_partition(session: Session, topic: str, partition: int, producer_id: int, confirm: Confirm) -> None:
    """End what no coordinator knows of: a marker on the partition itself."""
    admin.topic(session, topic)
    found = {p.producer_id: p for p in producers(session, topic, partition)}
    if producer_id not in found:
        raise not_found("producer", str(producer_id), map(str, found))
    producer = found[producer_id]
    if producer.current_txn_start_offset < 0:
        raise UserError(f"producer {producer_id} has no open transaction on {topic}-{partition}", code=ExitCode.REFUSED)
    confirm(f"Abort what producer {producer_id} has open on {topic}-{partition}?")
    api = messages.api("write_txn_markers")
    marker = api.WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        topics=[api.WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
        coordinator_epoch=producer.coordinator_epoch,
    )
    answer = session.client.call_leader(
        topic, partition, "write_txn_markers", api.Request(markers=[marker]), highest_version=1
    )
    code = answer.markers[0].topics[0].partitions[0].error_code
    if code:
        raise admin.refuse(code, f"{topic}-{partition}")


def hanging(session: Session, seconds: float, topics: list[str] | None = None) -> list[dict[str, Any]]:
    """Transactions that are open on a partition for so long and that no coordinator will end."""
    coordinated = {}
    for one in listed(session):
        if one.transaction_state in ("Ongoing", "PrepareCommit", "PrepareAbort"):
            coordinated[one.producer_id] = one.transactional_id
    rows = []
    for view in admin.cluster(session).topics.values():
        if topics is not None and view.name not in topics:
            continue
        for index in view.partitions:
            for p in producers(session, view.name, index):
                age = time.time() - p.last_timestamp / 1000
                if p.current_txn_start_offset >= 0 and age >= seconds and p.producer_id not in coordinated:
                    rows.append(
                        {
                            "topic": view.name,
                            "partition": index,
                            "producer_id": p.producer_id,
                            "epoch": p.producer_epoch,
                            "start_offset": p.current_txn_start_offset,
                            "age_seconds": round(age, 1),
                        }
                    )
    return rows
