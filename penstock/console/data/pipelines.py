"""Pipelines: how each does, its graph, its spec, its events; applying, starting, stopping, deleting. No Spark here."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import yaml

from penstock.console import workers
from penstock.console.data import messages, pipeline_graph, pipeline_rights
from penstock.console.data.groups import seen_lags
from penstock.console.data.viewer import Viewer
from penstock.console.policy import MASK
from penstock.console.search.wanted import Wanted
from penstock.console.snapshot import PIPELINES, PROGRESS
from penstock.operate import pipelines as operate
from penstock.operate.errors import ExitCode, UserError, not_found, usage_error
from penstock.pipelines.control.store import Applied, Conflict, PipelineStore
from penstock.pipelines.spec import PipelineSpec, SpecError, shape_of

LONGEST_TEXT = 500_000
SAMPLE_RECORDS = 25
_INNER = ("spec", "spark_ui")
CHECK_SECONDS, DRY_RUN_SECONDS = 60.0, 300.0


def seen_rows(viewer: Viewer) -> list[dict[str, Any]]:
    """The last look's rows of pipelines that the viewer sees. Errors may tell of records: they are masked with them."""
    return [
        {**row, "error": _told(viewer, row["spec"], row["error"])}
        for row in viewer.snapshot.pipelines
        if pipeline_rights.sees(viewer, row["spec"])
    ]


def _told(viewer: Viewer, spec: Mapping[str, Any], words: str | None) -> str | None:
    """What a driver said, unless it runs over records that are masked for this viewer."""
    return MASK if words and viewer.masks(pipeline_rights.topics_named(spec)[0]) else words


def pipelines(viewer: Viewer) -> list[dict[str, Any]]:
    """A row for each query of each applied pipeline, as of the last look."""
    return [{key: value for key, value in row.items() if key not in _INNER} for row in seen_rows(viewer)]


def summaries(viewer: Viewer) -> list[dict[str, Any]]:
    """A row for each pipeline: what its queries do together, as of the last look."""
    found = []
    for name, group in itertools.groupby(seen_rows(viewer), lambda row: row["pipeline"]):
        rows = list(group)
        runs = rows[0]["state"] == "running"
        spec = rows[0]["spec"]
        found.append(
            {
                "name": name,
                "state": rows[0]["state"],
                "error": rows[0]["error"],
                "generation": rows[0]["generation"],
                "queries": sum("query" in row for row in rows),
                "rows_per_second": sum(row.get("rows_per_second") or 0.0 for row in rows) if runs else 0.0,
                "lag": _lag(viewer, name, rows),
                "batch_ms": max((row.get("batch_ms") or 0 for row in rows), default=0) if runs else None,
                "sources": len(spec.get("sources") or ()),
                "sinks": len(spec.get("sinks") or ()),
            }
        )
    return found


def _lag(viewer: Viewer, name: str, rows: list[Any]) -> int | None:
    """What its group has not read, as the group's page counts it.

    What Spark tells is counted when a batch is planned, from what is then read: of a pipeline that keeps up it is
    always 0. It serves for one whose sources commit nothing.
    """
    group = viewer.snapshot.groups.get(group_of(name))
    if group is not None and group.offsets:
        return sum(seen_lags(viewer, group).values())
    return max((row["lag"] for row in rows if row.get("lag") is not None), default=None)


def group_of(name: str) -> str:
    """Under which name the topic sources of a pipeline commit what they have read."""
    return f"penstock.{name}"


def flow(viewer: Viewer, name: str) -> dict[str, Any]:
    """How a pipeline does as of the last look, with its graph: what its page shows again and again."""
    rows: list[Mapping[str, Any]] = [row for row in seen_rows(viewer) if row["pipeline"] == name]
    if not rows:
        applied = _applied(viewer, name)  # applied since the last look, or not there
        rows = [{"spec": applied.spec, **operate.list_row(applied, None)}]
    rates = {topic.name: topic.rate for topic in viewer.snapshot.topics.values() if viewer.sees(topic.name)}
    made = pipeline_graph.graph(name, rows[0]["spec"])
    return {
        "name": name,
        "state": rows[0]["state"],
        "error": rows[0]["error"],
        "generation": rows[0]["generation"],
        "lag": _lag(viewer, name, list(rows)),
        "queries": [{k: v for k, v in row.items() if k not in _INNER} for row in rows if "query" in row],
        "dead_letters": _letters(viewer, name, rows[0]["spec"]),
        "graph": pipeline_graph.with_flow(made, rows, rates),
    }


def letter_topic(name: str, spec: Mapping[str, Any]) -> str:
    return str((spec.get("settings") or {}).get("dead_letter_topic") or f"{name}.dlq")


def _letters(viewer: Viewer, name: str, spec: Mapping[str, Any]) -> int | None:
    """How many are kept, as of the last look; unknown to who does not see their topic."""
    topic = letter_topic(name, spec)
    if not viewer.sees(topic):
        return None
    figures = viewer.snapshot.topics.get(topic)
    return figures.records if figures is not None else 0


def names(viewer: Viewer) -> list[str]:
    """Those that are applied now."""
    return list(_all(viewer))


def _all(viewer: Viewer) -> dict[str, Applied]:
    """Those that the viewer sees."""
    if PIPELINES not in viewer.session.client.metadata(None).topics:
        return {}
    found = PipelineStore(viewer.session.client).all()
    return {name: one for name, one in found.items() if pipeline_rights.sees(viewer, one.spec)}


def _applied(viewer: Viewer, name: str) -> Applied:
    known = _all(viewer)
    if name not in known:
        raise not_found("pipeline", name, known)
    return known[name]


def pipeline(viewer: Viewer, name: str) -> dict[str, Any]:
    """One pipeline: its spec as applied, its state, its queries."""
    from penstock.pipelines.control import events

    applied = _applied(viewer, name)
    has_events = PROGRESS in viewer.snapshot.view.topics
    known = events.latest_states(viewer.session.client).get(name) if has_events else None
    row = operate.list_row(applied, known)
    queries = [{k: v for k, v in one.items() if k not in _INNER} for one in operate.status_rows(applied, known)]
    error = _told(viewer, applied.spec, row["error"])
    return {
        **row,
        "error": error,
        "spec": applied.spec,
        "text": as_yaml(applied.spec),
        "queries": [{**one, "error": error} for one in queries],
    }


class _Dumper(yaml.SafeDumper):
    """Texts of several lines stand as they are."""


_Dumper.add_representer(
    str,
    lambda dumper, value: dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None),
)


def as_yaml(spec: dict[str, Any]) -> str:
    return yaml.dump(spec, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


def log_lines(viewer: Viewer, name: str, count: int = 200) -> list[dict[str, Any]]:
    """The newest events, newest first."""
    from penstock.pipelines.control import events

    applied = _applied(viewer, name)
    if PROGRESS not in viewer.snapshot.view.topics:
        return []
    found = [event for event in events.recent(viewer.session.client, name) if event["kind"] != events.ALIVE]
    if viewer.masks(pipeline_rights.topics_named(applied.spec)[0]):
        found = [{**event, "error": None} for event in found if event["kind"] != events.LOG]
    newest = itertools.islice(reversed(found), count)
    return [
        {"at_ms": event["at_ms"], "kind": event["kind"], "state": event.get("state"), "line": operate.log_line(event)}
        for event in newest
    ]


# --- changes ---


def check(viewer: Viewer, text: str) -> dict[str, Any]:
    """Is the text a pipeline? Its name and parts; what is wrong, with the line, as an error.

    Code connectors are imported for it, in a process of its own: so it takes the same right as applying.
    """
    viewer.require("editor")
    if len(text) > LONGEST_TEXT:
        raise usage_error(f"a pipeline of {len(text):,} characters is too long", f"{LONGEST_TEXT:,} are allowed")
    if not viewer.may("admin"):
        pipeline_rights.insist_on_applying(viewer, _shape(text))
    return workers.checker.ask({"ask": "check", "text": text}, CHECK_SECONDS)


def _shape(text: str) -> PipelineSpec:
    """As far as it can be told without loading any of its code."""
    try:
        return shape_of(yaml.safe_load(text))
    except (SpecError, yaml.YAMLError, RecursionError) as error:
        raise usage_error(f"this is no pipeline: {str(error).splitlines()[0]}") from None


def _spec(viewer: Viewer, text: str) -> PipelineSpec:
    check(viewer, text)
    data = yaml.safe_load(text)
    if _names_a_file(data):
        hint = "apply it with `penstock pipeline apply`, which takes the file along"
        raise usage_error("descriptor_file names a file of your machine; the console cannot see it", hint)
    return shape_of(data)


def _names_a_file(data: Any) -> bool:
    if isinstance(data, dict):
        file = data.get("descriptor_file")
        return (isinstance(file, str) and "${" not in file) or any(_names_a_file(item) for item in data.values())
    return isinstance(data, list) and any(_names_a_file(item) for item in data)


def apply(
    viewer: Viewer, text: str, expected: int, desired: Literal["running", "stopped"] = "running"
) -> dict[str, Any]:
    """Store a pipeline. `expected` is the generation that the change was made of, 0 for a new one: whoever comes
    second is told who was first, and when."""
    spec = _spec(viewer, text)
    with viewer.change("editor", "pipeline.apply", spec.name) as session, _in_words():
        pipeline_rights.insist_on_applying(viewer, spec)
        _insist_on_same_right(viewer, spec.name)
        applied = PipelineStore(session.client).apply(spec, expected=expected, by=_who(viewer), desired=desired)
    return operate.list_row(applied, None)


def _insist_on_same_right(viewer: Viewer, name: str) -> None:
    """Who may not apply what is there may not put something else in its place."""
    known = PipelineStore(viewer.session.client).all().get(name) if not viewer.may("admin") else None
    if known is not None:
        pipeline_rights.insist_on_applying(viewer, shape_of(known.spec))


def reset(viewer: Viewer, name: str, *, backfill: bool = False) -> dict[str, Any]:
    """Forget what was read, and start over; `backfill` also rewrites the tables."""
    known = _applied(viewer, name)
    with viewer.change("admin", "pipeline.reset", name, backfill=backfill) as session, _in_words():
        applied = PipelineStore(session.client).apply(
            shape_of(known.spec),
            reset=uuid.uuid4().hex,
            backfill=backfill,
            expected=known.generation,
            by=_who(viewer),
        )
    return operate.list_row(applied, None)


def change(viewer: Viewer, name: str, desired: Literal["running", "stopped"]) -> dict[str, Any]:
    """Start, stop, or (running → running) restart."""
    applied = _applied(viewer, name)
    with viewer.change("admin", f"pipeline.{desired}", name) as session, _in_words():
        changed = PipelineStore(session.client).change(applied, desired, _who(viewer))
    return operate.list_row(changed, None)


def delete(viewer: Viewer, name: str) -> int:
    """Forget it, fence its driver and end what it has open; how many transactions that were."""
    _applied(viewer, name)
    with viewer.change("admin", "pipeline.delete", name) as session, _in_words():
        return operate.delete(session, name)


def _who(viewer: Viewer) -> str:
    return f"{viewer.user.name} (console)"


@contextmanager
def _in_words() -> Iterator[None]:
    """What the store refuses, as a user's error."""
    try:
        yield
    except Conflict as error:
        raise UserError(str(error), None, ExitCode.REFUSED) from None
    except SpecError as error:
        raise usage_error(str(error)) from None


def dry_run(viewer: Viewer, text: str) -> dict[str, Any]:
    """What each sink would get of the newest records of its topics; nothing is written anywhere."""
    spec = _spec(viewer, text)
    given = {
        name: [row for topic in _topics(source.options) for row in _sample(viewer, topic)]
        for name, source in spec.sources.items()
        if source.connector == "topic" and _topics(source.options)
    }
    question = {"ask": "dry_run", "text": text, "given": given}
    answer = workers.spark.ask(question, DRY_RUN_SECONDS)
    return {**answer, "given": {name: len(rows) for name, rows in given.items()}}


def _topics(options: Mapping[str, Any]) -> list[str]:
    return [str(topic) for topic in (options.get("topics") or [options.get("topic")]) if topic]


def _sample(viewer: Viewer, topic: str) -> list[dict[str, Any]]:
    """The newest records as this viewer sees them: what is masked stays masked."""
    rows = messages.messages(viewer, topic, Wanted(limit=SAMPLE_RECORDS))
    texts = [(row, row["key"], row["value"]) for row in reversed(rows)]
    return [
        {
            **({"key": key["text"]} if key is not None and key["kind"] != "hex" else {}),
            **({"value": value["text"]} if value is not None and value["kind"] != "hex" else {}),
        }
        for _, key, value in texts
        if value is None or not value["cut"]
    ]
