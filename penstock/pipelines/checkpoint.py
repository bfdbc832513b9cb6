"""What a pipeline keeps between runs, and whether a changed pipeline still fits it.

A folder per pipeline: `checkpoints/<query>` is Spark's, `queries/<query>.json` is ours: the identity by which sinks
recognise batches, and the fingerprint of what the checkpoint depends on. The identity lies in the checkpoint, too
(`penstock.id`): one without the other means that somebody removed a part, and sinks would skip or repeat batches.

Filters, columns, settings and triggers may change freely; sources, their order, stateful operations and the set of
sinks may not.
"""

from __future__ import annotations

import json
import logging
import uuid
from dataclasses import dataclass
from typing import Any, Final

from penstock.pipelines.fingerprint import kinds
from penstock.pipelines.spec import SpecError
from penstock.pipelines.storage import Storage

log = logging.getLogger(__name__)

_MARK: Final = "penstock.id"
_ANEW: Final = "anew"
_RESET: Final = "reset"
_DISCARDING: Final = "discarding.json"
POSITIONS: Final = "positions.json"  # topic → partition → where a pipeline goes on that has kept nothing else
_WAYS_OUT: Final = "--reset to forget what was read (sinks get everything again), or --backfill to rewrite its tables"
_PARTS: Final = {
    "sources": "its sources have",
    "stateful": "its stateful operations have",
    "operators": "its operators have",
    "code": "the Python code that its state depends on has",
    "sinks": "its sinks have",
    "mode": "its output mode has",
}


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
    is_anew: bool = False  # it follows a reset: tables that know another checkpoint are told this one
    folder: Storage | None = None

    def offsets(self, number: int) -> str | None:
        """What Spark noted before it ran a batch: how far each source goes in it."""
        assert self.folder is not None
        return self.folder.read_text(f"checkpoints/{self.checkpoint.rstrip('/').rpartition('/')[2]}/offsets/{number}")

    @property
    def name(self) -> str:
        """By what a topic recognises the batches of the query, if Spark streams into it."""
        return self.old_name or f"penstock.{self.pipeline}.{self.identity}"

    @property
    def prefix(self) -> str:
        """The same for each of its sinks, before the sink's name."""
        return f"penstock.{self.pipeline}.{self.identity}." if self.old_name is None else f"{self.identity}-"


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
                "anew": self.folder.exists(_ANEW) or self._is_backfill(),
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
        anew = made.get("anew", False)
        identity, old_name = made["identity"], made["old_name"]
        return QueryState(self._pipeline, identity, checkpoint, made["backfill"], old_name, anew, self.folder)

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
            names += [
                state.name,
                *[f"{state.prefix}{sink}" for sink in [*query.split("+"), "dead-letters", "late-rows"]],
            ]
        return names

    def _must_fit(self, query: str, old: dict[str, Any], new: dict[str, Any]) -> None:
        if "version" not in old:
            log.warning(
                "pipeline %s: the checkpoint of %r is of version 0.1.0, which noted no keys, windows and aggregates:"
                " it is taken over as it is; make sure that they are still the same",
                self._pipeline,
                query,
            )
        for words, was, now in self.misfits(old, new):
            raise DoesNotFit(
                f"pipeline {self._pipeline}: {words} changed, so that the checkpoint of {query!r} does not fit any"
                f" more (was {was}; is {now}). Give the pipeline a new name to"
                f" start beside the old one, --discard-state to go on where it was without its state, {_WAYS_OUT}"
            )

    @staticmethod
    def misfits(old: dict[str, Any], new: dict[str, Any]) -> list[tuple[str, str, str]]:
        """In words: what changed that the checkpoint depends on, how it was and how it is."""
        if "version" not in old:
            old, new = _comparable(old, new)
        return [
            (words, _shown(old.get(part)), _shown(new.get(part)))
            for part, words in _PARTS.items()
            if old.get(part) != new.get(part)
        ]

    def kept(self) -> dict[str, dict[str, Any]]:
        """Query → what its checkpoint was made for."""
        found = {}
        for file in self.folder.names("queries"):
            made = json.loads(self.folder.read_text(f"queries/{file}") or "{}")
            if file.endswith(".json") and "fingerprint" in made:
                found[file.removesuffix(".json")] = made["fingerprint"]
        return found

    def positions(self) -> dict[str, dict[str, int]]:
        """Topic → partition → up to where every query has read it; SpecError if that cannot be said."""
        found: dict[str, dict[str, int]] = json.loads(self.folder.read_text(POSITIONS) or "{}")
        seen: dict[tuple[str, str], int] = {}
        for query in self.kept():
            place = f"checkpoints/{query}"
            planned, done = (
                {int(name) for name in self.folder.names(f"{place}/{kind}") if name.isdigit()}
                for kind in ("offsets", "commits")
            )
            if not planned:
                continue
            if max(planned) not in done:
                raise SpecError(
                    f"pipeline {self._pipeline}: batch {max(planned)} of {query!r} is not finished; let the pipeline as"
                    " it was run once more with --until-caught-up, then discard its state"
                )
            for line in (self.folder.read_text(f"{place}/offsets/{max(planned)}") or "").splitlines()[2:]:
                for topic, offsets in self._topics_in(query, line).items():
                    for partition, offset in offsets.items():
                        if seen.setdefault((topic, partition), offset) != offset:
                            raise SpecError(
                                f"pipeline {self._pipeline}: its queries have read {topic}-{partition} up to different"
                                f" offsets ({seen[topic, partition]} and {offset}); let the pipeline as it was run once"
                                " more with --until-caught-up, then discard its state"
                            )
        for (topic, partition), offset in seen.items():
            found.setdefault(topic, {})[partition] = offset
        return found

    def _topics_in(self, query: str, line: str) -> dict[str, dict[str, int]]:
        if line == "-":  # not begun yet
            return {}
        data = json.loads(line)
        if "#ids" not in data:
            raise SpecError(
                f"pipeline {self._pipeline}: {query!r} reads a source that is no topic; only positions in topics can be"
                " kept without state"
            )
        return {topic: offsets for topic, offsets in data.items() if not topic.startswith("#")}

    def begin_discarding(self, positions: dict[str, dict[str, int]]) -> None:
        """These positions shall be kept and nothing else: said before anything goes, so that a crash loses nothing."""
        self.folder.write_text(_DISCARDING, json.dumps(positions))

    def is_discarding(self) -> bool:
        return self.folder.exists(_DISCARDING)

    def finish_discarding(self) -> None:
        for name in ("checkpoints", "queries", "late", "starts", "backfill"):
            self.folder.delete(name)
        self.folder.write_text(_ANEW, "state was discarded\n")
        self.folder.delete(POSITIONS)
        self.folder.move(_DISCARDING, POSITIONS)

    def _is_backfill(self) -> bool:
        return self.folder.exists("backfill")

    def reset(self, *, backfill: bool) -> None:
        """Forget everything that was read. Schemas that were inferred are forgotten too.

        Which reset of an applied pipeline was done last stays known: else the next start would do that one again.
        """
        last = self.last_reset()
        self.folder.delete()
        self.folder.write_text(_ANEW, "was reset\n")
        if backfill:
            self.folder.write_text("backfill", "from the beginning\n")
        if last is not None:
            self.note_reset(last)

    def last_reset(self) -> str | None:
        """The name of the last reset that was asked for by applying, and done."""
        return self.folder.read_text(_RESET)

    def note_reset(self, request: str) -> None:
        self.folder.write_text(_RESET, request)

    @property
    def from_beginning(self) -> bool:
        return self._is_backfill()


def _comparable(old: dict[str, Any], new: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What version 0.1.0 noted, in today's words: of stateful operations their kinds only."""
    before = {**old, "stateful": kinds(old["stateful"]), "sources": [item.split(" /")[0] for item in old["sources"]]}
    now = {part: new[part] for part in ("sources", "sinks", "mode")}
    return before, {**now, "stateful": kinds(new["stateful"])}


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else ", ".join(value or ()) or "none"
