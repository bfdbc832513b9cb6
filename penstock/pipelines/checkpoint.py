"""What a pipeline keeps between runs, and whether a changed pipeline still fits it.

A folder per pipeline: `checkpoints/<query>` is Spark's, `queries/<query>.json` is ours: a name for the query that the
sinks use to recognise batches, and the fingerprint of what the checkpoint depends on. Filters, columns, settings and
triggers may change freely; sources, their order, stateful operations and the set of sinks may not.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import Any, Final

from penstock.pipelines.plan import Graph, Query
from penstock.pipelines.spec import SpecError
from penstock.pipelines.storage import Storage

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


@dataclass(frozen=True)
class QueryState:
    """What identifies one query of one pipeline over its life."""

    identity: str
    checkpoint: str
    is_backfill: bool


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
        if kept is None:
            made: dict[str, Any] = {
                "identity": uuid.uuid4().hex[:16],
                "fingerprint": current,
                "backfill": self._is_backfill(),
            }
            if keep:
                self.folder.write_text(name, json.dumps(made, indent=1))
        else:
            made = json.loads(kept)
            self._must_fit(query, made["fingerprint"], current)
        return QueryState(made["identity"], self.folder.at("checkpoints", query), made["backfill"])

    def _must_fit(self, query: str, old: dict[str, Any], new: dict[str, Any]) -> None:
        for part, words in (("sources", "its sources"), ("stateful", "its stateful operations"),
                            ("sinks", "its sinks"), ("mode", "its output mode")):  # fmt: skip
            if old[part] != new[part]:
                raise DoesNotFit(
                    f"pipeline {self._pipeline}: {words} have changed, so that the checkpoint of {query!r} does not fit"
                    f" any more (was {_shown(old[part])}; is {_shown(new[part])}). Give the pipeline a new name to"
                    " start beside the old one, --reset to forget what was read, or --backfill to rewrite its tables"
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
