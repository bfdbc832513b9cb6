"""One look at a whole cluster: everything that lists and charts show, taken at once and then only read."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from penstock.client.metadata import ClusterView
from penstock.console.lag_ages import LagAges
from penstock.operate import admin
from penstock.operate.errors import UserError
from penstock.operate.groups import all_groups
from penstock.operate.pipelines import status_rows
from penstock.operate.session import Session
from penstock.protocol import messages

Key = tuple[str, int]
PIPELINES, PROGRESS = "__penstock_pipelines", "__penstock_progress"
OVERLAP = 200
RATE_SECONDS = 3.0  # at least between the two looks that a rate is made of


@dataclass(frozen=True, slots=True)
class GroupFigures:
    name: str
    state: str
    kind: str
    protocol: str
    coordinator: int
    offsets: Mapping[Key, int]
    lag: int
    lag_by_topic: Mapping[str, int]
    rate: float | None  # records per second that it commits
    lag_seconds: float | None  # since the oldest record was written that it has not read


@dataclass(frozen=True, slots=True)
class TopicFigures:
    name: str
    partitions: int
    replicas: int
    under_replicated: int
    offline: int
    records: int | None  # offsets between start and end
    bytes: int | None  # on all replicas
    rate: float | None  # records per second
    byte_rate: float | None
    internal: bool


@dataclass(slots=True)
class PipelineMemory:
    """What earlier looks read of pipelines: the next one reads only what came since."""

    ends: dict[Key, int] = field(default_factory=dict)
    applied: dict[str, Any] = field(default_factory=dict)
    states: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Snapshot:
    at_ms: int
    took_ms: float
    view: ClusterView
    is_penstock: bool
    topics: Mapping[str, TopicFigures]
    groups: Mapping[str, GroupFigures]
    ends: Mapping[Key, int]
    starts: Mapping[Key, int]
    folders: tuple[Mapping[str, Any], ...]
    pipelines: tuple[Mapping[str, Any], ...]
    broker_rates: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    """Records that it took in as leader, bytes that it wrote, per second."""
    figures: Mapping[str, float] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    """What this cluster cannot tell → why."""
    memory: PipelineMemory = field(default_factory=lambda: PipelineMemory())
    base: Snapshot | None = None
    """The look that this one's rates count from."""

    def total(self, name: str) -> float:
        return self.figures.get(name, 0.0)


def look(session: Session, before: Snapshot | None, ages: LagAges | None = None) -> Snapshot:
    """Asks for metadata, offsets, log folders, groups and pipelines; rates come from an earlier look.

    Without `ages` nobody wants to know for how long groups are behind.
    """
    began = time.monotonic()
    missing: dict[str, str] = {}
    view = admin.cluster(session)
    is_penstock = before.is_penstock if before is not None else _is_penstock(session, view)
    keys = [(t.name, i) for t in view.topics.values() for i, p in t.partitions.items() if p.leader_id >= 0]
    ends = {key: at.offset for key, at in session.client.list_offsets(dict.fromkeys(keys, -1)).items()}
    starts = {key: at.offset for key, at in session.client.list_offsets(dict.fromkeys(keys, -2)).items()}
    folders = _tolerant("sizes", missing, lambda: _folders(session, view), ())
    at_ms = int(time.time() * 1000)
    base = _base(before, at_ms)
    seconds = (at_ms - base.at_ms) / 1000 if base is not None else None
    topics = _topics(view, ends, starts, folders, base, seconds)
    groups = _tolerant("groups", missing, lambda: _groups(session, ends, base, seconds, ages, at_ms), {})
    memory = before.memory if before is not None else PipelineMemory()
    pipelines = _tolerant("pipelines", missing, lambda: _pipelines(session, view, ends, memory), ())
    loads = _broker_rates(view, ends, folders, base, seconds) if base is not None and seconds else {}
    figures = _figures(topics, groups, pipelines) if base is not None else {}
    for node, (records, written) in loads.items():
        figures |= {f"broker:{node}:in": records, f"broker:{node}:in_bytes": written}
    return Snapshot(
        at_ms=at_ms,
        took_ms=(time.monotonic() - began) * 1000,
        view=view,
        is_penstock=is_penstock,
        topics=topics,
        groups=groups,
        ends=ends,
        starts=starts,
        folders=tuple(folders),
        pipelines=tuple(pipelines),
        broker_rates=loads,
        figures=figures,
        missing=missing,
        memory=memory,
        base=base,
    )


def _base(before: Snapshot | None, at_ms: int) -> Snapshot | None:
    """A change is followed by a look at once: what came in the moment between the two says nothing about a second."""
    if before is None:
        return None
    if at_ms - before.at_ms >= RATE_SECONDS * 1000:
        return replace(before, base=None)
    return before.base


def _broker_rates(
    view: ClusterView, ends: Mapping[Key, int], folders: Any, before: Snapshot, seconds: float
) -> dict[int, tuple[float, float]]:
    records, written = dict.fromkeys(view.brokers, 0), dict.fromkeys(view.brokers, 0)
    for topic in view.topics.values():
        for index, partition in topic.partitions.items():
            key = (topic.name, index)
            if partition.leader_id in records and key in ends and key in before.ends:
                records[partition.leader_id] += max(0, ends[key] - before.ends[key])
    old = {(folder["broker"], key): size for folder in before.folders for key, size in folder["sizes"].items()}
    for folder in folders:
        for key, size in folder["sizes"].items():
            written[folder["broker"]] += max(0, size - old.get((folder["broker"], key), size))
    return {node: (records[node] / seconds, written[node] / seconds) for node in view.brokers}


def _tolerant(what: str, missing: dict[str, str], ask: Any, otherwise: Any) -> Any:
    """An answer that this cluster, or what the console may do there, does not give is left out, with the reason."""
    try:
        return ask()
    except UserError as error:
        missing[what] = error.message
        return otherwise


def _is_penstock(session: Session, view: ClusterView) -> bool:
    """Only our brokers have settings of our name."""
    node = min(view.brokers)
    try:
        return any(
            config.name.startswith("penstock.")
            for config in admin.describe_configs(session, admin.BROKER_RESOURCE, str(node), node)
        )
    except UserError:
        return False  # not allowed to ask: treated as a foreign one, where nothing is created


def _folders(session: Session, view: ClusterView) -> list[dict[str, Any]]:
    api = messages.api("describe_log_dirs")
    found = []
    for node, answer in admin.on_every_broker(session, "describe_log_dirs", api.Request(topics=None)).items():
        for folder in answer.results:
            sizes: dict[Key, int] = {
                (t.name, p.partition_index): p.partition_size for t in folder.topics for p in t.partitions
            }
            found.append(
                {
                    "broker": node,
                    "folder": folder.log_dir,
                    "error_code": folder.error_code,
                    "sizes": sizes,
                    "bytes": sum(sizes.values()),
                    "total_bytes": folder.total_bytes if folder.total_bytes > 0 else None,
                    "free_bytes": folder.usable_bytes if folder.usable_bytes >= 0 else None,
                }
            )
    return found


def _topics(
    view: ClusterView,
    ends: Mapping[Key, int],
    starts: Mapping[Key, int],
    folders: Any,
    before: Snapshot | None,
    seconds: float | None,
) -> dict[str, TopicFigures]:
    sizes: dict[str, int] = defaultdict(int)
    for folder in folders:
        for (name, _), size in folder["sizes"].items():
            sizes[name] += size
    found = {}
    for topic in view.topics.values():
        name = topic.name
        known = [(name, index) for index in topic.partitions if (name, index) in ends]
        rate = byte_rate = None
        old = before.topics.get(name) if before is not None else None
        if before is not None and seconds:
            grown = sum(
                max(0, ends[key] - before.ends.get(key, 0)) for key in known if old is None or key in before.ends
            )
            rate = grown / seconds
            if old is not None and old.bytes is not None:
                byte_rate = max(0, sizes[name] - old.bytes) / seconds
        found[name] = TopicFigures(
            name=name,
            partitions=len(topic.partitions),
            replicas=max((len(p.replicas) for p in topic.partitions.values()), default=0),
            under_replicated=sum(p.leader_id >= 0 and len(p.isr) < len(p.replicas) for p in topic.partitions.values()),
            offline=sum(p.leader_id < 0 for p in topic.partitions.values()),
            records=sum(ends[key] - starts.get(key, 0) for key in known) if known else None,
            bytes=sizes[name] if folders else None,
            rate=rate,
            byte_rate=byte_rate,
            internal=admin.is_hidden(name, topic.is_internal),
        )
    return found


def _groups(
    session: Session,
    ends: Mapping[Key, int],
    before: Snapshot | None,
    seconds: float | None,
    ages: LagAges | None,
    at_ms: int,
) -> dict[str, GroupFigures]:
    known, committed = all_groups(session), {}
    for name, listed in sorted(known.items()):
        is_consumer = listed.protocol_type in ("consumer", "") and listed.group_type in ("classic", "consumer", "")
        committed[name] = (
            {key: at for key, (at, _) in admin.committed_offsets(session, name).items()} if is_consumer else {}
        )
    if ages is not None:
        ages.note(at_ms, ends, (key for offsets in committed.values() for key in offsets))
    found = {}
    for name, offsets in committed.items():
        listed = known[name]
        by_topic: dict[str, int] = defaultdict(int)
        for key, offset in offsets.items():
            by_topic[key[0]] += max(0, ends.get(key, offset) - offset)
        rate = None
        old = before.groups.get(name) if before is not None else None
        if old is not None and seconds:
            rate = sum(max(0, offset - old.offsets.get(key, offset)) for key, offset in offsets.items()) / seconds
        found[name] = GroupFigures(
            name=name,
            state=listed.group_state,
            kind=listed.group_type or "classic",
            protocol=listed.protocol_type,
            coordinator=-1,
            offsets=offsets,
            lag=sum(by_topic.values()),
            lag_by_topic=dict(by_topic),
            rate=rate,
            lag_seconds=_oldest(offsets, ends, ages, at_ms) if ages is not None else None,
        )
    return found


def _oldest(offsets: Mapping[Key, int], ends: Mapping[Key, int], ages: LagAges, at_ms: int) -> float | None:
    behind = {key: offset for key, offset in offsets.items() if ends.get(key, offset) > offset}
    if not behind:
        return 0.0 if offsets else None
    known = [ages.seconds(key, offset, at_ms) for key, offset in behind.items()]
    return max((age for age in known if age is not None), default=None)


def _pipelines(
    session: Session, view: ClusterView, ends: Mapping[Key, int], memory: PipelineMemory
) -> list[dict[str, Any]]:
    """Only if this cluster has some: asking creates their topics."""
    if PIPELINES not in view.topics:
        return []
    from penstock.pipelines.control import events
    from penstock.pipelines.control.store import PipelineStore

    now = {key: end for key, end in ends.items() if key[0] in (PIPELINES, PROGRESS)}
    if any(now[key] != memory.ends.get(key) for key in now if key[0] == PIPELINES):
        memory.applied = PipelineStore(session.client).all()
    came = now.get((PROGRESS, 0), 0) - memory.ends.get((PROGRESS, 0), 0)
    if came < 0 or (PROGRESS, 0) not in memory.ends:
        memory.states = events.latest_states(session.client)
    elif came:
        # What was open at the last look may have been committed since: read that once more.
        events.fold(memory.states, events.recent(session.client, limit=came + OVERLAP))
    memory.ends = now
    states, applied = memory.states, memory.applied
    return [
        {"desired": one.desired, "generation": one.generation, "spec": one.spec, **row, **_behind(row)}
        for one in applied.values()
        for row in status_rows(one, states.get(one.name))
    ]


def _behind(row: Mapping[str, Any]) -> dict[str, float | None]:
    """How far a query's watermark is behind the clock; before the first row it stands at 1970."""
    try:
        at = datetime.fromisoformat(str(row.get("watermark")).replace("Z", "+00:00")).timestamp()
    except ValueError:
        return {"watermark_seconds": None}
    return {"watermark_seconds": max(0.0, time.time() - at) if at > 0 else None}


def _figures(
    topics: Mapping[str, TopicFigures], groups: Mapping[str, GroupFigures], pipelines: Any
) -> dict[str, float]:
    """Everything that is kept over time. What stays at zero is kept too while it is recent: charts need the zero."""
    shown = [t for t in topics.values() if not t.internal]
    figures = {
        "in": sum(t.rate or 0 for t in shown),
        "in_bytes": sum(t.byte_rate or 0 for t in shown),
        "out": sum(g.rate or 0 for name, g in groups.items() if not admin.is_hidden(name)),
        "lag": float(sum(g.lag for g in groups.values())),
        "bytes": float(sum(t.bytes or 0 for t in topics.values())),
        "under_replicated": float(sum(t.under_replicated for t in topics.values())),
        "offline": float(sum(t.offline for t in topics.values())),
    }
    for topic in shown:
        if topic.rate is not None:
            figures[f"topic:{topic.name}:in"] = topic.rate
        if topic.byte_rate is not None:
            figures[f"topic:{topic.name}:in_bytes"] = topic.byte_rate
    for name, group in groups.items():
        if not admin.is_hidden(name):
            figures[f"group:{name}:lag"] = float(group.lag)
            if group.rate is not None:
                figures[f"group:{name}:out"] = group.rate
            if group.lag_seconds is not None:
                figures[f"group:{name}:lag_seconds"] = group.lag_seconds
    for row in pipelines:
        if "query" in row:
            figures |= _pipeline_figures(row)
    return figures


def _pipeline_figures(row: Mapping[str, Any]) -> dict[str, float]:
    """Of one query; one that does not run reads nothing, whatever its last batch was like."""
    begin, runs = f"pipeline:{row['pipeline']}:{row['query']}", row["state"] == "running"
    made = {f"{begin}:rows": float(row.get("rows_per_second") or 0.0) if runs else 0.0}
    if row.get("lag") is not None:
        made[f"{begin}:lag"] = float(row["lag"])
    if runs:
        made[f"{begin}:batch_ms"] = float(row.get("batch_ms") or 0.0)
        made[f"{begin}:state_bytes"] = float(row.get("state_bytes") or 0.0)
        if row.get("watermark_seconds") is not None:
            made[f"{begin}:watermark_seconds"] = float(row["watermark_seconds"])
    return made
