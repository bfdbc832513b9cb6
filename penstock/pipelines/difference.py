"""What applying a pipeline would change: entries of its spec, and which offsets and state its checkpoint would lose.

Nothing is written. The first half is plain data; the second compares what the checkpoint was made for with what the new
spec makes of it on Spark, the same way as a start does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.pipelines.checkpoint import PipelineState


@dataclass(frozen=True)
class Change:
    place: str  # sinks.out.options.key
    before: str  # empty: was not there
    after: str  # empty: will not be there


@dataclass(frozen=True)
class QueryChange:
    query: str
    fits: bool
    reason: str  # why it does not go on where it was
    lost: tuple[str, ...] = ()  # the state that the query has and that cannot be taken over


def spec_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    before, after = dict(_flat(old)), dict(_flat(new))
    return [
        Change(place, before.get(place, ""), after.get(place, ""))
        for place in dict.fromkeys([*before, *after])
        if before.get(place) != after.get(place)
    ]


def _flat(value: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for name, item in value.items():
            yield from _flat(item, (*place, str(name)))
    elif value not in (None, {}, [], ()):
        yield ".".join(place), value if isinstance(value, str) else json.dumps(value)


def state_changes(state: PipelineState, fingerprints: Mapping[str, dict[str, Any]]) -> list[QueryChange]:
    """`fingerprints`: of the queries that the new spec has."""
    kept = state.kept()
    made = []
    for query, current in fingerprints.items():
        if query not in kept:
            made.append(QueryChange(query, not kept, "begins where its sources say" if kept else "has not run yet"))
            continue
        misfits = state.misfits(kept[query], current)
        reason = "; ".join(f"{words} changed (was {was}; would be {now})" for words, was, now in misfits)
        made.append(QueryChange(query, not misfits, reason, _state_in(kept[query]) if misfits else ()))
    for query, old in kept.items():
        if query not in fingerprints:
            made.append(QueryChange(query, False, "is no longer there: what it has read is forgotten", _state_in(old)))
    return made


def _state_in(fingerprint: Mapping[str, Any]) -> tuple[str, ...]:
    return ("offsets of " + ", ".join(fingerprint.get("sources", ())), *fingerprint.get("stateful", ()))
