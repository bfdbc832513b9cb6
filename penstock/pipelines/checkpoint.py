"""What a pipeline keeps between runs, and whether a changed pipeline still fits it.

A folder per pipeline: `checkpoints/<query>` is Spark's, `queries/<query>.json` is ours: the identity by which sinks
recognise batches, and the fingerprint of what the checkpoint depends on. The identity lies in the checkpoint, too
(`penstock.id`): one without the other means that somebody removed a part, and sinks would skip or repeat batches.

Filters, columns, settings and triggers may change freely; sources, their order, stateful operations and the set of
sinks may not.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import Any, Final

from penstock.pipelines.plan import Graph, Query
from penstock.pipelines.spec import SpecError
from penstock.pipelines.storage import Storage

_MARK: Final = "penstock.id"
_WAYS_OUT: Final = "--reset to forget what was read (sinks get everything again), or --backfill to rewrite its tables"
_STATEFUL: Final = (
    "Aggregate",
    "Deduplicate",
    "DeduplicateWithinWatermark",
    "Distinct",
    "FlatMapGroupsWithState",
    "FlatMapGroupsInPandasWithState",
    "TransformWithState",
    "TransformWithStateInPySpark",
    "TransformWithStateInPandas",
    "GlobalLimit",
)


class DoesNotFit(SpecError):
    """The pipeline has changed in a way that its checkpoint cannot follow."""


class CheckpointGone(SpecError):
    """The checkpoint and what is noted about it do not belong together."""


@dataclass(frozen=True)
class QueryState:
    """What identifies one query of one pipeline over its life."""

    pipeline: str
    identity: str
    checkpoint: str
    is_backfill: bool
    old_name: str | None = None  # a checkpoint of version 0.1.0: by what its topics know it

    @property
    def name(self) -> str:
        """By what a topic recognises the batches of the query, if Spark streams into it."""
        return self.old_name or f"penstock.{self.pipeline}.{self.identity}"

    @property
    def prefix(self) -> str:
        """The same for each of its sinks, before the sink's name."""
        return f"penstock.{self.pipeline}.{self.identity}." if self.old_name is None else f"{self.identity}-"


def fingerprint(rows: Any, query: Query, graph: Graph) -> dict[str, Any]:
    """What a checkpoint depends on, read from the plan that Spark made of the query."""
    analyzed = rows._jdf.queryExecution().analyzed()
    sources: list[str] = []
    stateful: list[str] = []
    _walk(analyzed, sources, stateful)
    return {"sources": sources, "stateful": stateful, "sinks": list(query.sinks), "mode": query.output_mode}


def _walk(node: Any, sources: list[str], stateful: list[str]) -> None:
    if not node.isStreaming():
        return
    children = node.children()
    for index in range(children.size()):
        _walk(children.apply(index), sources, stateful)
    name = node.getClass().getSimpleName()
    if children.size() == 0:
        label = _source_label(node, name)
        if label not in sources:
            sources.append(label)
    elif name == "Join" and all(children.apply(index).isStreaming() for index in range(children.size())):
        stateful.append(f"{name} of {_types(children.apply(0))} and {_types(children.apply(1))}")
    elif name in _STATEFUL:
        stateful.append(f"{name} giving {_types(node)}")


def _types(node: Any) -> str:
    return str(node.schema().simpleString())


def _source_label(node: Any, name: str) -> str:
    if name == "StreamingRelationV2":
        options = node.extraOptions()
        told = [options.get(key) for key in ("subscribe", "subscribePattern", "table", "kind", "path")]
        return " ".join([str(node.sourceName()), *[str(value) for value in told if value is not None]])
    if name == "StreamingRelation":
        options = node.dataSource().options()
        return f"{node.sourceName()} {options.apply('path') if options.contains('path') else ''}".strip()
    return name


class PipelineState:
    """The folder of one pipeline."""

    def __init__(self, folder: Storage, pipeline: str) -> None:
        self.folder = folder
        self._pipeline = pipeline

    def open(self, query: str, current: dict[str, Any], *, keep: bool = True) -> QueryState:
        """The state of a query, new or kept; DoesNotFit if the kept one belongs to another pipeline."""
        name = f"queries/{query}.json"
        kept = self.folder.read_text(name)
        mark = f"checkpoints/{query}/{_MARK}"
        if kept is None:
            if self._spark_id(query) is not None:
                raise CheckpointGone(
                    f"pipeline {self._pipeline}: there is a checkpoint of {query!r}, but {self.folder.at(name)} is not,"
                    f" by which its sinks recognise batches. Put it back, {_WAYS_OUT}"
                )
            made: dict[str, Any] = {
                "identity": uuid.uuid4().hex[:16],
                "fingerprint": current,
                "backfill": self._is_backfill(),
                "old_name": None,
            }
            if keep:
                self.folder.write_text(mark, made["identity"])
                self.folder.write_text(name, json.dumps(made, indent=1))
        else:
            made = json.loads(kept)
            self._must_belong(query, made, self.folder.read_text(mark))
            self._must_fit(query, made["fingerprint"], current)
            if "old_name" not in made:
                made = {**made, "old_name": self._spark_id(query), "fingerprint": current}
                if keep:
                    self.folder.write_text(mark, made["identity"])
                    self.folder.write_text(name, json.dumps(made, indent=1))
        checkpoint = self.folder.at("checkpoints", query)
        return QueryState(self._pipeline, made["identity"], checkpoint, made["backfill"], made["old_name"])

    def _must_belong(self, query: str, made: dict[str, Any], mark: str | None) -> None:
        """Version 0.1.0 left no mark: its checkpoints are taken as they are, if they are there."""
        if mark == made["identity"] or (mark is None and "old_name" not in made and self._spark_id(query) is not None):
            return
        raise CheckpointGone(
            f"pipeline {self._pipeline}: the checkpoint of {query!r} was removed or replaced, but its sinks still know"
            f" which batches they have: they would skip what is read again. Put it back, {_WAYS_OUT}"
        )

    def _spark_id(self, query: str) -> str | None:
        """What Spark calls the query of a checkpoint."""
        text = self.folder.read_text(f"checkpoints/{query}/metadata")
        return None if text is None else str(json.loads(text)["id"])

    def sink_names(self) -> list[str]:
        """All names under which sinks of this folder may know its batches."""
        return self._names(is_old=False) + self._names(is_old=True)

    def old_sink_names(self) -> list[str]:
        """Those that version 0.1.0 gave, which nobody has registered."""
        return self._names(is_old=True)

    def _names(self, *, is_old: bool) -> list[str]:
        names: list[str] = []
        for file in self.folder.names("queries"):
            query = file.removesuffix(".json")
            made = json.loads(self.folder.read_text(f"queries/{file}") or "{}")
            old_name = made.get("old_name", self._spark_id(query))
            if not file.endswith(".json") or "identity" not in made or (old_name is not None) != is_old:
                continue
            state = QueryState(self._pipeline, made["identity"], "", False, old_name)
            names += [state.name, *[f"{state.prefix}{sink}" for sink in query.split("+")]]
        return names

    def _must_fit(self, query: str, old: dict[str, Any], new: dict[str, Any]) -> None:
        for part, words in (("sources", "its sources"), ("stateful", "its stateful operations"),
                            ("sinks", "its sinks"), ("mode", "its output mode")):  # fmt: skip
            if old[part] != new[part]:
                raise DoesNotFit(
                    f"pipeline {self._pipeline}: {words} have changed, so that the checkpoint of {query!r} does not fit"
                    f" any more (was {_shown(old[part])}; is {_shown(new[part])}). Give the pipeline a new name to"
                    f" start beside the old one, {_WAYS_OUT}"
                )

    def _is_backfill(self) -> bool:
        return self.folder.exists("backfill")

    def reset(self, *, backfill: bool) -> None:
        """Forget everything that was read. Schemas that were inferred are forgotten too."""
        self.folder.delete()
        if backfill:
            self.folder.write_text("backfill", "from the beginning\n")

    @property
    def from_beginning(self) -> bool:
        return self._is_backfill()


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else ", ".join(value) or "none"
