"""Whether a changed pipeline still fits its checkpoint: what state depends on counts, and nothing else."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.pipelines.checkpoint import DoesNotFit, PipelineState
from penstock.pipelines.execution import Execution, Place
from penstock.pipelines.fingerprint import _Plan, code_hash
from penstock.pipelines.spec import from_data
from penstock.pipelines.storage import LocalStorage

HOPPING = (
    "named_struct(start, f(((g(ts#7-T10000ms) - 0) % 60000000)), end, f(((g(ts#7-T10000ms) - 0) % 60000000) + {}))"
)


def explained(*lines: str) -> str:
    """A plan as Spark prints it."""
    return "\n".join(
        ["== Parsed ==", "…", "== Analyzed Logical Plan ==", "k: string", *lines, "== Optimized Logical Plan =="]
    )


SOURCE = (
    "+- ~Project [_decoded#2.country AS country#4, _decoded#2.amount AS amount#6, _decoded#2.ts AS ts#7]",
    "   +- ~StreamingRelationV2 a.b@1f, penstock, c@2e, [x=true, subscribe=orders, y=1], [key#0], name=<U>",
)


def test_keys_and_values_are_traced_to_the_columns_of_the_source() -> None:
    plan = _Plan(
        explained(
            "~Aggregate [k#9], [k#9 AS land#20, sum((v#8 * cast(2 as double))) AS total#21]",
            "+- ~Filter (amount#6 > cast(3 as double))",
            "   +- ~Project [upper(country#4) AS k#9, abs(amount#6) AS v#8]",
            *SOURCE,
        )
    )
    assert plan.stateful() == ["Aggregate by upper(country) of sum((abs(amount) * cast(2 as double)))"]
    assert plan.sources() == ["penstock orders"]


@pytest.mark.parametrize(("micros", "shown"), [(60000000, "window(ts, 60 s)"), (300000000, "window(ts, 60 s, 300 s)")])
def test_windows_are_part_of_it(micros: int, shown: str) -> None:
    window = HOPPING.format(micros)
    plan = _Plan(
        explained(
            "~Aggregate [window#13-T10000ms], [window#13-T10000ms.start AS s#1, count(1) AS n#2L]",
            f"+- ~Project [{window} AS window#13-T10000ms, ts#7-T10000ms]",
            *SOURCE,
        )
    )
    assert plan.stateful() == [f"Aggregate by {shown} of count(1)"]


def test_an_aggregate_of_all_rows_has_no_keys() -> None:
    plan = _Plan(explained("~Aggregate [count(1) AS n#2L]", *SOURCE))
    assert plan.stateful() == ["Aggregate by nothing of count(1)"]


def test_a_join_keeps_state_only_between_two_streams() -> None:
    left, right = ":- ~SubqueryAlias a", "+- ~SubqueryAlias b"
    assert _Plan(explained("~Join Inner, (a#1 = b#2)", left, right)).stateful() == ["Join Inner, (a = b)"]
    assert _Plan(explained("~Join Inner, (a#1 = b#2)", left, "+- Relation [b#2]")).stateful() == []


def test_the_users_code_counts_only_where_state_depends_on_it() -> None:
    free = _Plan(explained("~Project [up(country#4)#18 AS k#5]", *SOURCE))
    inside = _Plan(
        explained("~Aggregate [k#5], [k#5, count(1) AS n#6L]", "+- ~Project [up(country#4)#18 AS k#5]", *SOURCE)
    )
    assert not free.runs_user_code(0) and inside.runs_user_code(0)
    data = {"name": "p", "sources": {"o": {"topic": "o"}}, "sinks": {"out": {"from": "o", "topic": "x"}}}
    spec = from_data(data)

    def hashed(code: str) -> str:
        return code_hash(spec.model_copy(update={"modules": {"m": code}}))

    assert hashed("def up(x):\n    return x.upper()") == hashed("def up(x):  # loud\n    return x.upper()")
    assert hashed("def up(x):\n    return x.upper()") != hashed("def up(x):\n    return x.lower()")


def kept_by_0_1_0(folder: Path) -> PipelineState:
    """What version 0.1.0 left of a running pipeline with one aggregate."""
    state = PipelineState(LocalStorage(str(folder / "totals")), "totals")
    noted = {
        "identity": "0123456789abcdef",
        "fingerprint": {
            "sources": ["penstock orders"],
            "stateful": ["Aggregate giving struct<country:string,total:double>"],
            "sinks": ["out"],
            "mode": "append",
        },
        "backfill": False,
    }
    state.folder.write_text("queries/out.json", json.dumps(noted, indent=1))
    state.folder.write_text("checkpoints/out/metadata", '{"id":"f3b0c1de-0000-4000-8000-000000000001"}')
    return state


CURRENT = {
    "version": 2,
    "sources": ["penstock orders"],
    "stateful": ["Aggregate by country of sum(amount)"],
    "operators": [],
    "sinks": ["out"],
    "mode": "append",
}


def test_a_checkpoint_of_0_1_0_is_taken_over_with_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    state = kept_by_0_1_0(tmp_path)
    with caplog.at_level(logging.WARNING):
        taken = state.open("out", CURRENT)
        again = state.open("out", CURRENT)
    assert len(caplog.records) == 1 and "of version 0.1.0" in caplog.text
    assert taken == again
    # Its sinks know it by the names of then.
    assert (taken.name, taken.prefix) == ("f3b0c1de-0000-4000-8000-000000000001", "0123456789abcdef-")
    with pytest.raises(
        DoesNotFit, match=r"was Aggregate by country of sum\(amount\); is Aggregate by city of max\(amount\)"
    ):
        state.open("out", {**CURRENT, "stateful": ["Aggregate by city of max(amount)"]})


def test_a_checkpoint_of_0_1_0_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DoesNotFit, match=r"stateful operations have changed.*was Aggregate; is none"):
        kept_by_0_1_0(tmp_path).open("out", {**CURRENT, "stateful": []})


@pytest.mark.spark
def test_real_changes_are_refused_or_let_pass(
    spark: Any, broker: Any, tmp_path: Path, new_topic: Callable[..., str]
) -> None:
    topic, name = new_topic(partitions=1, label="orders"), f"totals-{uuid.uuid4().hex[:6]}"
    place = Place({"bootstrap.servers": broker.bootstrap}, str(tmp_path))
    columns = "country STRING, city STRING, amount DOUBLE, at TIMESTAMP"

    def prepare(sql: str, columns: str = columns) -> None:
        source = {"topic": topic, "format": {"type": "json", "schema": columns}, "on_bad_record": "drop"}
        data = {
            "name": name,
            "sources": {"orders": {**source, "watermark": {"column": "at", "delay": "1 minute"}}},
            "views": {"totals": sql},
            "sinks": {"out": {"from": "totals", "topic": f"{topic}.out", "output_mode": "update"}},
        }
        Execution.prepare(from_data(data), spark, place)

    query = "SELECT {} AS key, {} AS value FROM orders {} GROUP BY {}, window(at, '{}')"
    prepare(query.format("country", "sum(amount)", "", "country", "1 minute"))
    prepare(query.format("country", "sum(amount)", "WHERE amount > 0", "country", "1 minute"))
    prepare(query.format("country", "sum(amount)", "", "country", "1 minute"), f"{columns}, more STRING")
    with pytest.raises(DoesNotFit, match=r"was Aggregate by country, window\(at, 60 s\).*window\(at, 300 s\)"):
        prepare(query.format("country", "sum(amount)", "", "country", "5 minutes"))
    with pytest.raises(DoesNotFit, match=r"sum\(amount\); is Aggregate by city.*of max\(amount\)"):
        prepare(query.format("city", "max(amount)", "", "city", "1 minute"))
