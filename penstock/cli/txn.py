"""`penstock txn`: transactions that are open, what they hold back, and ending those that nobody ends."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import admin, suggest
from penstock.cli.errors import ExitCode, UserError, not_found, usage_error
from penstock.cli.positions import parse_duration
from penstock.cli.topic import Yes, confirm
from penstock.cli.typed import command, new_app
from penstock.protocol import messages

if TYPE_CHECKING:
    from penstock.cli.session import Session

app = new_app("Transactions: list, describe, abort, find hanging ones.")

Id = Annotated[str, typer.Argument(metavar="TRANSACTIONAL-ID", show_default=False)]
NO_TIMEOUT_MS = 2**31 - 1  # a two-phase transaction: it waits for its decision for ever


def _listed(session: Session) -> list[Any]:
    api = messages.api("list_transactions")
    request = api.Request(state_filters=[], producer_id_filters=[], duration_filter=-1, transactional_id_pattern=None)
    found = []
    for node, answer in admin.on_every_broker(session, "list_transactions", request).items():
        if answer.error_code:
            raise admin.refuse(answer.error_code, f"transactions of broker {node}")
        found += answer.transaction_states
    return sorted(found, key=lambda t: t.transactional_id)


def _described(session: Session, transactional_id: str) -> Any:
    api = messages.api("describe_transactions")
    request = api.Request(transactional_ids=[transactional_id])
    answer = session.client.call_coordinator("transaction", transactional_id, "describe_transactions", request)
    state = answer.transaction_states[0]
    if state.error_code == 105:
        raise not_found("transaction", transactional_id, (t.transactional_id for t in _listed(session)))
    if state.error_code:
        raise admin.refuse(state.error_code, transactional_id)
    return state


def _row(state: Any) -> dict[str, Any]:
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


@command(app, "list")
def list_transactions(
    session: Session,
    state: Annotated[str | None, typer.Option("--state", help="Ongoing, Empty, CompleteCommit, …")] = None,
) -> None:
    """List transactional ids with their state and, of open ones, their age."""
    rows = [
        _row(_described(session, t.transactional_id))
        for t in _listed(session)
        if state is None or t.transaction_state.lower() == state.lower()
    ]
    columns = ["id", "state", "producer_id", "epoch", "age_seconds", "two_phase", "partitions"]
    session.output.rows(rows, columns, right=["producer_id", "epoch", "age_seconds"], empty="no transactions")


@command(app)
def describe(session: Session, transactional_id: Id) -> None:
    """Show one transaction and where it holds back read-committed consumers."""
    row = _row(_described(session, transactional_id))
    held = []
    for name in row["partitions"]:
        topic, _, index = name.rpartition("-")
        key = (topic, int(index))
        stable = admin.list_offsets(session, {key: admin.LATEST}, committed=True).get(key, (None, 0))[0]
        end = admin.list_offsets(session, {key: admin.LATEST}).get(key, (None, 0))[0]
        held.append({"partition": name, "last_stable_offset": stable, "end": end,
                     "held_back": end - stable if stable is not None and end is not None else None})  # fmt: skip
    if session.output.as_json:
        session.output.record({**row, "held_back": held})
        return
    session.output.rows([row], ["id", "state", "producer_id", "epoch", "age_seconds", "timeout_ms", "two_phase"])
    if row["state"] == "Ongoing":
        session.output.rows(
            held,
            ["partition", "last_stable_offset", "end", "held_back"],
            right=["last_stable_offset", "end", "held_back"],
        )


@command(app)
def abort(
    session: Session,
    transactional_id: Annotated[str | None, typer.Argument(metavar="[TRANSACTIONAL-ID]", show_default=False)] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", help="With --partition and --producer-id: one without coordinator.")
    ] = None,
    partition: Annotated[int | None, typer.Option("--partition")] = None,
    producer_id: Annotated[int | None, typer.Option("--producer-id")] = None,
    yes: Yes = False,
) -> None:
    """Abort an open transaction: by its id, or (hanging, unknown to any coordinator) on one partition."""
    if transactional_id is not None:
        _abort_by_id(session, transactional_id, yes)
    elif topic is not None and partition is not None and producer_id is not None:
        _abort_on_partition(session, topic, partition, producer_id, yes)
    else:
        raise usage_error("say which", "a transactional id, or --topic T --partition N --producer-id P")


def _abort_by_id(session: Session, transactional_id: str, yes: bool) -> None:
    state = _described(session, transactional_id)
    if state.transaction_state != "Ongoing":
        raise UserError(f"{transactional_id} is {state.transaction_state}: nothing to abort", code=ExitCode.REFUSED)
    confirm(f"Abort the transaction of {transactional_id}?", yes)
    api = messages.api("end_txn")
    request = api.Request(
        transactional_id=transactional_id,
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        committed=False,
    )
    answer = session.client.call_coordinator("transaction", transactional_id, "end_txn", request, highest_version=4)
    if answer.error_code:
        raise admin.refuse(answer.error_code, transactional_id)
    session.output.result(
        {"id": transactional_id, "aborted": True}, f"the transaction of {transactional_id} is aborted"
    )


def _producers(session: Session, topic: str, partition: int) -> list[Any]:
    api = messages.api("describe_producers")
    request = api.Request(topics=[api.TopicRequest(name=topic, partition_indexes=[partition])])
    answer = session.client.call_leader(topic, partition, "describe_producers", request)
    found = answer.topics[0].partitions[0]
    if found.error_code:
        raise admin.refuse(found.error_code, f"{topic}-{partition}", found.error_message)
    return list(found.active_producers)


def _abort_on_partition(session: Session, topic: str, partition: int, producer_id: int, yes: bool) -> None:
    admin.topic(session, topic)
    producers = {p.producer_id: p for p in _producers(session, topic, partition)}
    if producer_id not in producers:
        raise not_found("producer", str(producer_id), map(str, producers))
    producer = producers[producer_id]
    if producer.current_txn_start_offset < 0:
        raise UserError(f"producer {producer_id} has no open transaction on {topic}-{partition}", code=ExitCode.REFUSED)
    confirm(f"Abort what producer {producer_id} has open on {topic}-{partition}?", yes)
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
    session.output.result(
        {"topic": topic, "partition": partition, "producer_id": producer_id, "aborted": True}, "aborted"
    )


@command(app, "find-hanging")
def find_hanging(
    session: Session,
    older_than: Annotated[str, typer.Option("--older-than", help="Only those open for so long.")] = "15m",
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", help="Only these; all if none.", autocompletion=suggest.topics)
    ] = None,
) -> None:
    """Find transactions that are open on a partition and that no coordinator will end."""
    seconds = parse_duration(older_than)
    coordinated = {}
    for listed in _listed(session):
        if listed.transaction_state in ("Ongoing", "PrepareCommit", "PrepareAbort"):
            coordinated[listed.producer_id] = listed.transactional_id
    rows = []
    for view in admin.cluster(session).topics.values():
        if topic is not None and view.name not in topic:
            continue
        for index in view.partitions:
            for p in _producers(session, view.name, index):
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
    columns = ["topic", "partition", "producer_id", "epoch", "start_offset", "age_seconds"]
    session.output.rows(rows, columns, right=columns[1:], empty="no hanging transactions")
