"""From `topic` to `topic.v2`, for a pipeline, for the pipelines that read what it writes, and for groups outside.

Old and new topic hold what was made of the same source records, up to where the stopped pipeline stands: whoever has
read one to its end goes on at the end of the other. Whoever has not is named, with how much is left, and not moved.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.operate import admin
from penstock.operate.errors import ExitCode, UserError, not_found
from penstock.operate.groups import all_groups, commit_offsets, insist_on_no_members
from penstock.operate.pipelines import pipeline_state

if TYPE_CHECKING:
    from penstock.operate.session import Session
    from penstock.pipelines.control.store import Applied

Key = tuple[str, int]


@dataclass(frozen=True)
class GroupMove:
    group: str
    topic: str  # the new one
    offsets: dict[Key, int]  # where it would go on
    left: int  # records of the old topic that it has not read: it is not moved


@dataclass
class Plan:
    """What would change; nothing has yet."""

    name: str
    topics: dict[str, str]  # old → new
    specs: dict[str, dict[str, Any]] = field(default_factory=dict)  # pipeline → its new spec; the writer's first
    begins: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)  # reader → where it goes on
    generations: dict[str, int] = field(default_factory=dict)
    groups: list[GroupMove] = field(default_factory=list)


def plan_repoint(session: Session, name: str, suffix: str) -> Plan:
    from penstock.pipelines.control import events
    from penstock.pipelines.control.store import PipelineStore

    applied = PipelineStore(session.client).all()
    if name not in applied:
        raise not_found("pipeline", name, applied)
    sinks = applied[name].parsed().sinks
    named = [str(sink.options["topic"]) for sink in sinks.values() if sink.options.get("topic")]
    topics = {topic: f"{topic}{suffix}" for topic in named if not topic.endswith(suffix)}
    if not topics:
        raise UserError(f"{name} writes to no topic that does not end in {suffix} already", None, ExitCode.REFUSED)
    for topic in topics.values():
        admin.topic(session, topic)  # complains if it is not there
    plan = Plan(name, topics, {name: _moved(applied[name].spec, "sinks", topics)})
    states = events.latest_states(session.client)
    readers = [item for key, item in applied.items() if key != name and _reads(item, topics)]
    for item in [applied[name], *readers]:
        if item.desired != "stopped":
            hint = f"penstock pipeline stop {item.name}, and let it come to rest"
            raise UserError(f"{item.name} runs: what it has read and written would move meanwhile", hint)
        if pipeline_state(item, states.get(item.name))[0] == "stopping":
            hint = f"penstock pipeline status {item.name} says when it has stopped; then repeat this"
            raise UserError(f"{item.name} has not come to rest yet: its last batch is still on its way", hint)
        plan.generations[item.name] = item.generation
    for item in readers:
        _plan_reader(session, plan, item)
    for group in sorted(all_groups(session)):
        if not group.startswith("penstock."):
            plan.groups += _group_moves(session, group, topics)
    return plan


def _plan_reader(session: Session, plan: Plan, reader: Applied) -> None:
    begins: dict[str, dict[str, int]] = {}
    for move in _group_moves(session, f"penstock.{reader.name}", _reads(reader, plan.topics)):
        if move.left:
            hint = f"penstock pipeline restart {reader.name}, wait until its lag is 0, stop it, and repeat this"
            raise UserError(f"{reader.name} has not read {move.left} records of the old topic yet", hint)
        begins[move.topic] = {str(index): offset for (_, index), offset in move.offsets.items()}
    plan.specs[reader.name] = _moved(reader.spec, "sources", plan.topics)
    plan.begins[reader.name] = begins


def _reads(item: Applied, topics: dict[str, str]) -> dict[str, str]:
    sources = item.parsed().sources.values()
    read = {topic for source in sources for topic in (source.options.get("topic"), *source.options.get("topics", ()))}
    return {old: new for old, new in topics.items() if old in read}


def _moved(spec: dict[str, Any], section: str, topics: dict[str, str]) -> dict[str, Any]:
    parts = {}
    for name, part in spec[section].items():
        options = dict(part.get("options", {}))
        if options.get("topic") in topics:
            options["topic"] = topics[options["topic"]]
        if options.get("topics"):
            options["topics"] = [topics.get(topic, topic) for topic in options["topics"]]
        parts[name] = {**part, "options": options}
    return {**spec, section: parts}


def _group_moves(session: Session, group: str, topics: dict[str, str]) -> list[GroupMove]:
    moves = []
    committed = {key: offset for key, (offset, _) in admin.committed_offsets(session, group).items()}
    for old, new in topics.items():
        mine = {key: offset for key, offset in committed.items() if key[0] == old}
        if not mine:
            continue
        keys = [(old, index) for index in admin.topic(session, old).partitions]
        ends = admin.list_offsets(session, dict.fromkeys(keys, admin.LATEST), committed=True)
        starts = admin.list_offsets(session, dict.fromkeys(keys, admin.EARLIEST))
        left = sum(max(0, ends[key][0] - mine.get(key, starts[key][0])) for key in keys)
        news = [(new, index) for index in admin.topic(session, new).partitions]
        found = admin.list_offsets(session, dict.fromkeys(news, admin.LATEST), committed=True)
        moves.append(GroupMove(group, new, {key: found[key][0] for key in news}, left))
    return moves


def repoint(session: Session, plan: Plan, *, groups: bool) -> None:
    """Readers and groups first, the writer last: as long as it writes nothing, nobody misses anything.

    May be repeated: until the writer is re-pointed, whoever is not is found again.
    """
    from penstock.pipelines.control.store import PipelineStore
    from penstock.pipelines.spec import from_data

    moving = [move for move in plan.groups if not move.left] if groups else []
    for move in moving:
        insist_on_no_members(session, move.group)
    store = PipelineStore(session.client)
    for name, begin in plan.begins.items():
        spec, expected = from_data(plan.specs[name]), plan.generations[name]
        store.apply(spec, reset=uuid.uuid4().hex, discard_state=True, begin=begin, expected=expected)
    for move in moving:
        commit_offsets(session, move.group, move.offsets)
    store.apply(from_data(plan.specs[plan.name]), expected=plan.generations[plan.name])
