"""`penstock partition`: move replicas (by plan or automatically), elect leaders, see what is going on."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import admin, suggest
from penstock.cli.errors import ExitCode, UserError, not_found, usage_error
from penstock.cli.reassignment_plan import even_plan
from penstock.cli.topic import Yes, confirm
from penstock.cli.typed import command, new_app
from penstock.protocol import messages

if TYPE_CHECKING:
    from penstock.cli.session import Session

app = new_app("Move partitions between brokers and elect leaders.")

Plan = dict[tuple[str, int], list[int]]
NO_REASSIGNMENT, ELECTION_NOT_NEEDED = 85, 84
THROTTLES = ("leader.replication.throttled", "follower.replication.throttled")


@command(app)
def status(
    session: Session,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", help="Only this one.", autocompletion=suggest.topics)
    ] = None,
) -> None:
    """Show partitions that move, miss replicas, or have no leader."""
    moving = _moving(session)
    rows = []
    for view in admin.cluster(session).topics.values():
        for index, p in view.partitions.items():
            moves = moving.get((view.name, index))
            state = "moving" if moves else "offline" if p.leader_id < 0 else "under-replicated"
            if (topic is None or view.name == topic) and (moves or p.leader_id < 0 or len(p.isr) < len(p.replicas)):
                rows.append(
                    {
                        "topic": view.name,
                        "partition": index,
                        "state": state,
                        "leader": p.leader_id if p.leader_id >= 0 else None,
                        "replicas": list(p.replicas),
                        "isr": list(p.isr),
                        "adding": moves[0] if moves else [],
                        "removing": moves[1] if moves else [],
                    }
                )
    columns = ["topic", "partition", "state", "leader", "replicas", "isr", "adding", "removing"]
    session.output.rows(
        rows, columns, right=["partition", "leader"], empty="all partitions are whole and at their place"
    )


def _moving(session: Session) -> dict[tuple[str, int], tuple[list[int], list[int]]]:
    api = messages.api("list_partition_reassignments")
    answer = session.client.call_controller("list_partition_reassignments", api.Request(topics=None, timeout_ms=10_000))
    if answer.error_code:
        raise admin.refuse(answer.error_code, "reassignments", answer.error_message)
    return {
        (t.name, p.partition_index): (p.adding_replicas, p.removing_replicas)
        for t in answer.topics
        for p in t.partitions
    }


@command(app)
def elect(
    session: Session,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", help="Only this topic.", autocompletion=suggest.topics)
    ] = None,
    partition: Annotated[list[int] | None, typer.Option("--partition", help="Only these; may be repeated.")] = None,
    unclean: Annotated[bool, typer.Option("--unclean", help="Any live replica may lead: records may be lost.")] = False,
    yes: Yes = False,
) -> None:
    """Give leadership back to the preferred replicas (the first of each list)."""
    if partition and topic is None:
        raise usage_error("--partition needs --topic", "for example --topic orders --partition 0")
    if unclean:
        confirm("Elect leaders that may miss records?", yes)
    api = messages.api("elect_leaders")
    chosen = None
    if topic is not None:
        indexes = partition or sorted(admin.topic(session, topic).partitions)
        chosen = [api.TopicPartitions(topic=topic, partitions=indexes)]
    request = api.Request(election_type=int(unclean), topic_partitions=chosen, timeout_ms=30_000)
    answer = session.client.call_controller("elect_leaders", request)
    if answer.error_code:
        raise admin.refuse(answer.error_code, "election")
    rows = [
        {"topic": t.topic, "partition": p.partition_id, "result": _result(p)}
        for t in answer.replica_election_results
        for p in t.partition_result
        if p.error_code != ELECTION_NOT_NEEDED or chosen is not None
    ]
    session.output.rows(
        rows, ["topic", "partition", "result"], right=["partition"], empty="every leader is the preferred one"
    )
    if any(row["result"] not in ("elected", "already preferred") for row in rows):
        raise UserError("some partitions got no new leader", code=ExitCode.INCOMPLETE)


def _result(row: Any) -> str:
    if row.error_code == 0:
        return "elected"
    return (
        "already preferred" if row.error_code == ELECTION_NOT_NEEDED else admin.refuse(row.error_code, "").message[2:]
    )


@command(app)
def reassign(
    session: Session,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", help="Only these; all if none.", autocompletion=suggest.topics)
    ] = None,
    brokers: Annotated[str | None, typer.Option("--brokers", help="Spread evenly over these ids, e.g. 1,2,4.")] = None,
    plan: Annotated[
        Path | None, typer.Option("--plan", help="A plan in the format of kafka-reassign-partitions.")
    ] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Call off what is moving.")] = False,
    throttle: Annotated[int, typer.Option("--throttle", min=0, help="Bytes per second and broker; 0: none.")] = 0,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Show progress until it is done.")] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan only.")] = False,
    yes: Yes = False,
) -> None:
    """Move partitions: by a plan, or evenly over brokers with as few moves as possible. The plan is shown first."""
    if cancel:
        moving = _moving(session)
        _submit(session, dict.fromkeys(moving))
        session.output.result({"cancelled": len(moving)}, f"{len(moving)} moves called off")
        return
    view = admin.cluster(session)
    current: Plan = {
        (t.name, index): list(p.replicas)
        for t in view.topics.values()
        for index, p in t.partitions.items()
        if topic is None or t.name in topic
    }
    for name in topic or []:
        admin.topic(session, name)
    if plan is not None:
        target = _read_plan(plan)
        current = _replicas(session, target)
    else:
        target = even_plan(current, _broker_ids(brokers, set(view.brokers)))
    changed = {key: replicas for key, replicas in target.items() if current.get(key) != replicas}
    rows = [
        {"topic": name, "partition": index, "from": current.get((name, index)), "to": replicas}
        for (name, index), replicas in sorted(changed.items())
    ]
    session.output.rows(rows, ["topic", "partition", "from", "to"], right=["partition"], empty="nothing has to move")
    if dry_run or not changed:
        return
    confirm(f"Move {len(changed)} partitions?", yes or session.output.as_json)
    if throttle:
        _throttle(session, changed, current, throttle)
    try:
        _submit(session, changed)
        if wait:
            _watch(session, set(changed))
    finally:
        if throttle and wait:
            _unthrottle(session, {name for name, _ in changed})
    if not session.output.as_json:
        session.output.text(f"{len(changed)} partitions moved" if wait else f"{len(changed)} partitions are moving")


def _replicas(session: Session, plan: Plan) -> Plan:
    """Where the partitions of a plan are now; all of them must exist."""
    current = {}
    for name, index in plan:
        known = admin.topic(session, name).partitions
        if index not in known:
            raise not_found("partition", f"{name}-{index}", (f"{name}-{number}" for number in known))
        current[name, index] = list(known[index].replicas)
    return current


def _broker_ids(text: str | None, live: set[int]) -> list[int]:
    if text is None:
        return sorted(live)
    try:
        wanted = sorted({int(word) for word in text.split(",")})
    except ValueError:
        raise usage_error(f"--brokers {text!r} is not a list of ids", "for example 1,2,4") from None
    unknown = [node for node in wanted if node not in live]
    if unknown:
        raise UserError(
            f"broker {unknown[0]} is not live", f"live: {', '.join(map(str, sorted(live)))}", ExitCode.NOT_FOUND
        )
    return wanted


def _read_plan(path: Path) -> Plan:
    if not path.is_file():
        raise UserError(f"there is no file {path}", code=ExitCode.NOT_FOUND)
    try:
        rows = json.loads(path.read_text())["partitions"]
        return {(row["topic"], int(row["partition"])): [int(node) for node in row["replicas"]] for row in rows}
    except (ValueError, KeyError, TypeError) as error:
        hint = '{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}'
        raise usage_error(f"{path} is no plan: {error!r}", hint) from None


def _submit(session: Session, plan: dict[tuple[str, int], Any]) -> None:
    api = messages.api("alter_partition_reassignments")
    topics: dict[str, list[Any]] = {}
    for (name, index), replicas in plan.items():
        topics.setdefault(name, []).append(api.ReassignablePartition(partition_index=index, replicas=replicas))
    rows = [api.ReassignableTopic(name=name, partitions=partitions) for name, partitions in topics.items()]
    request = api.Request(topics=rows, timeout_ms=30_000)
    answer = session.client.call_controller("alter_partition_reassignments", request)
    if answer.error_code:
        raise admin.refuse(answer.error_code, "reassignment", answer.error_message)
    for t in answer.responses:
        for p in t.partitions:
            if p.error_code and p.error_code != NO_REASSIGNMENT:
                raise admin.refuse(p.error_code, f"{t.name}-{p.partition_index}", p.error_message)


def _watch(session: Session, keys: set[tuple[str, int]]) -> None:
    with session.output.progress("moving", len(keys)) as progress:
        while left := keys & set(_moving(session)):
            progress.update(len(keys) - len(left))
            time.sleep(0.5)
        progress.update(len(keys))


def _throttle(session: Session, changed: Plan, current: Plan, rate: int) -> None:
    """Only the moving replicas are throttled: sources on the leaders' side, targets on the followers'."""
    for name in {name for name, _ in changed}:
        sources = [f"{i}:{node}" for (t, i) in changed if t == name for node in current[t, i]]
        targets = [
            f"{i}:{node}" for (t, i), new in changed.items() if t == name for node in new if node not in current[t, i]
        ]
        values = (",".join(sources), ",".join(targets))
        changes = [(f"{key}.replicas", 0, value) for key, value in zip(THROTTLES, values, strict=True)]
        admin.alter_configs(session, admin.TOPIC_RESOURCE, name, changes)
    for node in admin.cluster(session).brokers:
        admin.alter_configs(
            session, admin.BROKER_RESOURCE, str(node), [(f"{key}.rate", 0, str(rate)) for key in THROTTLES]
        )


def _unthrottle(session: Session, topics: set[str]) -> None:
    for name in topics:
        admin.alter_configs(session, admin.TOPIC_RESOURCE, name, [(f"{key}.replicas", 1, None) for key in THROTTLES])
    for node in admin.cluster(session).brokers:
        admin.alter_configs(session, admin.BROKER_RESOURCE, str(node), [(f"{key}.rate", 1, None) for key in THROTTLES])
