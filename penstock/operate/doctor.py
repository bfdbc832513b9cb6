"""Looks at a cluster as an experienced operator would, and says what to do about what it finds."""

from __future__ import annotations

import shlex
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from penstock.operate import admin
from penstock.operate.brokers import broker_rows
from penstock.operate.doctor_limits import certificates, open_files
from penstock.operate.doctor_records import records
from penstock.operate.groups import all_groups, lag_rows
from penstock.operate.machines import shared_machines
from penstock.operate.pipelines import SILENT_MS
from penstock.operate.transactions import described, listed, owner_of, transaction_row
from penstock.protocol import messages

if TYPE_CHECKING:
    from penstock.operate.session import Session
    from penstock.pipelines.spark.sink_journal import SinkState

Finding = tuple[str, str, str]
"""severity (ok, note, warning, problem), what was found, what to do."""

SKEW = 1.5
LAG_SECONDS = 300
FREE_SHARE = 0.10
LONG_SECONDS = 15 * 60


def examine(session: Session) -> Iterator[dict[str, Any]]:
    """Every check in turn: its findings, or that all is in order."""
    for name, check in CHECKS.items():
        findings = list(check(session))
        for severity, what, hint in findings or [("ok", "in order", "")]:
            yield {"check": name, "severity": severity, "finding": what, "hint": hint or None}


def connectivity(session: Session) -> Iterator[Finding]:
    view = session.client.metadata(())
    if view.controller_id not in view.brokers:
        yield "problem", "there is no live controller", "look at the brokers' logs and at ZooKeeper"
    for node in _fenced(session):
        yield (
            "problem",
            f"broker {node} is registered but out of the controller's reach: it leads nothing",
            f"look at the network between it and broker {view.controller_id}, and at its log",
        )
    for node, address in sorted(view.brokers.items()):
        began = time.perf_counter()
        try:
            socket.create_connection((address.host, address.port), timeout=5).close()
        except OSError as error:
            where = f"{address.host}:{address.port}"
            yield (
                "problem",
                f"broker {node} says to be at {where}, which cannot be reached: {error}",
                "set advertised.listeners to an address that clients reach",
            )
            continue
        took = (time.perf_counter() - began) * 1e3
        if took > 200:
            yield (
                "warning",
                f"connecting to broker {node} takes {took:.0f} ms",
                "look at the network between here and there",
            )


def _fenced(session: Session) -> list[int]:
    request = messages.api("describe_cluster").Request(include_fenced_brokers=True)
    answers = admin.on_every_broker(session, "describe_cluster", request)
    return sorted({b.broker_id for answer in answers.values() for b in answer.brokers if b.is_fenced})


def replicas(session: Session) -> Iterator[Finding]:
    view = admin.cluster(session)
    offline = [f"{t.name}-{i}" for t in view.topics.values() for i, p in t.partitions.items() if p.leader_id < 0]
    short = [
        f"{t.name}-{i}"
        for t in view.topics.values()
        for i, p in t.partitions.items()
        if p.leader_id >= 0 and len(p.isr) < len(p.replicas)
    ]
    if offline:
        yield (
            "problem",
            f"{len(offline)} partitions have no leader: {_some(offline)}",
            "start the brokers that hold them; `penstock partition status` shows which",
        )
    if short:
        yield (
            "warning",
            f"{len(short)} partitions miss replicas: {_some(short)}",
            "a broker is down or cannot keep up; `penstock partition status`",
        )
    single = [
        t.name
        for t in view.topics.values()
        if len(view.brokers) > 2 and any(len(p.replicas) < 2 for p in t.partitions.values())
    ]
    if single:
        yield (
            "note",
            f"{len(single)} topics have one replica only: {_some(single)}",
            "a broker's loss loses them; `penstock partition reassign --plan`",
        )


def skew(session: Session) -> Iterator[Finding]:
    if len(admin.live_brokers(session)) < 2:
        return
    rows = broker_rows(session)
    for what, hint in (("leads", "`penstock partition elect`"), ("replicas", "`penstock partition reassign`")):
        counts = [row[what] for row in rows]
        if max(counts) > SKEW * (sum(counts) / len(counts)) + 1:
            busiest = max(rows, key=lambda row: row[what])
            yield (
                "warning",
                f"broker {busiest['id']} {what} {max(counts)}, the average is {sum(counts) / len(counts):.0f}",
                hint,
            )


def lag(session: Session) -> Iterator[Finding]:
    for name in sorted(all_groups(session)):
        offsets = admin.committed_offsets(session, name)
        late = [row for row in lag_rows(session, sorted(offsets), offsets) if (row["lag_seconds"] or 0) > LAG_SECONDS]
        if late:
            worst = max(late, key=lambda row: row["lag_seconds"])
            yield (
                "warning",
                f"group {name} is {worst['lag_seconds']:.0f} s behind on {worst['topic']}-{worst['partition']}",
                f"`penstock group describe {shlex.quote(name)}`",
            )


def disk(session: Session) -> Iterator[Finding]:
    api = messages.api("describe_log_dirs")
    for node, answer in admin.on_every_broker(session, "describe_log_dirs", api.Request(topics=[])).items():
        for folder in answer.results:
            if folder.error_code:
                yield (
                    "problem",
                    f"broker {node}: {folder.log_dir} is off line",
                    "look at the disk and at the broker's log",
                )
            elif folder.total_bytes > 0 and folder.usable_bytes < FREE_SHARE * folder.total_bytes:
                free = folder.usable_bytes / folder.total_bytes
                yield (
                    "warning",
                    f"broker {node}: {folder.log_dir} has {free:.0%} free",
                    "lower retention, or add disks or brokers",
                )


def transactions(session: Session) -> Iterator[Finding]:
    """Those that are open for long, and at once those that nobody will end: they hide what others write, too."""
    from penstock.pipelines.control import events
    from penstock.pipelines.spark import sink_journal

    is_open = [one for one in listed(session) if one.transaction_state == "Ongoing"]
    if not is_open:
        return
    owners = session.client.run(sink_journal.all_states)
    seen = {name: state.get("seen_at_ms", 0) for name, state in events.latest_states(session.client).items()}
    for one in is_open:
        row = transaction_row(described(session, one.transactional_id))
        if row["state"] == "Ongoing" and not row["id"].endswith("-driver"):
            yield from _open_transaction(row, owner_of(owners, row["id"]), seen)


def _open_transaction(
    row: dict[str, Any], owner: tuple[str, SinkState] | None, seen: Mapping[str, int]
) -> Iterator[Finding]:
    from penstock.pipelines.spark.sink_journal import BACKFILL

    what = f"transaction {row['id']}"
    holds = f"it holds back readers of {_some(row['partitions'])}"
    quoted = shlex.quote(row["id"])  # an id is any text of a client; this line may be pasted into a shell
    look = f"`penstock txn describe {quoted}`, then `penstock txn abort {quoted}`"
    pipeline = owner[1].pipeline if owner is not None else None
    silent_ms = time.time() * 1000 - seen.get(pipeline or "", 0)
    if owner is not None and pipeline is not None and owner[1].ended:
        finish = f"the next start of {pipeline} finishes that, or, if it is gone, `penstock pipeline delete {pipeline}`"
        yield "problem", f"{what} is left of pipeline {pipeline}, which was reset or deleted: {holds}", finish
    elif pipeline is not None and silent_ms > SILENT_MS:
        go_on = f"start {pipeline} again, or end what it left: run --reset, or `penstock pipeline delete {pipeline}`"
        if owner is not None and owner[1].place == BACKFILL:
            delete = f"`penstock pipeline delete {pipeline}`"
            go_on = f"give the same `penstock pipeline backfill` again, or end what it left for good: {delete}"
        yield "problem", f"{what} of pipeline {pipeline} is open, and nobody runs that: {holds}", go_on
    elif row["two_phase"] and pipeline is None:
        yield "warning", f"{what} waits for ever, and its owner is unknown: {holds}", look
    elif (row["age_seconds"] or 0) > LONG_SECONDS:
        yield "warning", f"{what} is open for more than 15 minutes", look


RISKY: tuple[tuple[str, Callable[[str], bool], str], ...] = (
    ("unclean.leader.election.enable", lambda v: v == "true", "records can be lost when leaders die; set it to false"),
    (
        "auto.create.topics.enable",
        lambda v: v == "true",
        "a mistyped name makes a topic; set it to false in production",
    ),
    ("log.retention.ms", lambda v: v == "-1", "nothing is ever deleted; watch the disk"),
)


def settings(session: Session) -> Iterator[Finding]:
    live = admin.live_brokers(session)
    for node in sorted(live):
        values = {c.name: c.value for c in admin.describe_configs(session, admin.BROKER_RESOURCE, str(node), node)}
        for key, risky, why in RISKY:
            if key in values and values[key] is not None and risky(values[key]):
                yield "note", f"broker {node}: {key} is {values[key]}", why
        if values.get("penstock.inter.broker.secret") == "accept":
            yield (
                "warning",
                f"broker {node}: penstock.inter.broker.secret is accept: whoever reaches it can speak as a broker",
                "set it to required as soon as all brokers are upgraded",
            )
        if len(live) > 2 and values.get("min.insync.replicas") == "1":
            yield (
                "note",
                f"broker {node}: min.insync.replicas is 1",
                "with acks=all one copy is enough; 2 survives a broker's loss",
            )
        if values.get("default.replication.factor") == "1" and len(live) > 1:
            yield "note", f"broker {node}: default.replication.factor is 1", "new topics have one copy; set it to 3"


def copies(session: Session) -> Iterator[Finding]:
    """Topics that Penstock keeps for itself were made when there were fewer brokers."""
    view = session.client.metadata(None)
    wanted = min(3, len(view.brokers))
    for name, topic in sorted(view.topics.items()):
        fewest = min((len(part.replicas) for part in topic.partitions.values()), default=wanted)
        if name.startswith("__") and fewest < wanted:
            yield (
                "warning",
                f"{name} is kept {fewest} times, although there are {len(view.brokers)} brokers",
                f"`penstock partition reassign --plan FILE` with {wanted} replicas for each of its partitions",
            )


def _some(names: list[Any]) -> str:
    return ", ".join(map(str, names[:3])) + (", …" if len(names) > 3 else "")


CHECKS: dict[str, Callable[[Session], Iterator[Finding]]] = {
    "connectivity": connectivity,
    "replicas": replicas,
    "records": records,
    "skew": skew,
    "lag": lag,
    "disk": disk,
    "transactions": transactions,
    "certificates": certificates,
    "files": open_files,
    "settings": settings,
    "copies": copies,
    "machines": shared_machines,
}
