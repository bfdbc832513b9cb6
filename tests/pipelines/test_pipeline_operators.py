"""Each operator's example on its cases, as `penstock pipeline test` runs them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.pipelines.load import load
from penstock.pipelines.spec import SpecError
from penstock.pipelines.spec_yaml import load_text
from penstock.pipelines.trial import run_case, run_cases

EXAMPLES = Path(__file__).parents[2] / "examples" / "pipelines"
pytestmark = pytest.mark.spark


@pytest.mark.parametrize("name", sorted(path.name.removesuffix(".cases.yml") for path in EXAMPLES.glob("*.cases.yml")))
def test_example(spark: Any, name: str) -> None:
    for result in run_cases(load(EXAMPLES / f"{name}.yml"), spark, EXAMPLES / f"{name}.cases.yml"):
        assert result.differences == [], result.name


def test_a_case_that_does_not_hold_says_what_differs(spark: Any) -> None:
    spec = load(EXAMPLES / "clean-orders.yml")
    case = {"given": {"orders": [{"value": {"id": "a", "amount": 1}}]}, "expect": {"out": [{"id": "b"}]}}
    found = run_case(spec, spark, case).differences
    assert found[0] == 'out: missing {"id": "b"}'
    assert found[1].startswith('out: unexpected {"id": "a", "amount": 1.0')
    with pytest.raises(SpecError, match="there is no source 'oders'"):
        run_case(spec, spark, {"given": {"oders": []}})


@pytest.mark.parametrize(
    ("view", "message"),
    [
        ("SELECT id, amunt FROM orders", r"view v: .*`amunt` cannot be resolved.*`amount`"),
        ("SELECT id FROM oders", r"view v: .*`oders` cannot be found"),
        ("SELEC id FROM orders", r"view v: .*[Ss]yntax error at or near 'SELEC'"),
        (
            "{operator: remember, from: orders, key: idd, ttl: 1 day}",
            r"view v: there is no column 'idd'; did you mean 'id'",
        ),
    ],
)
def test_an_unknown_column_or_table_is_one_line_with_the_view(spark: Any, view: str, message: str) -> None:
    spec = load_text(
        "name: p\nsources:\n  orders: {topic: o, format: {type: json, schema: 'id STRING, amount DOUBLE'}}\n"
        f"views:\n  v: {view}\nsinks:\n  out: {{from: v, topic: out}}\n"
    )
    with pytest.raises(SpecError, match=message) as caught:
        run_case(spec, spark, {"given": {"orders": []}, "expect": {"out": []}})
    assert "\n" not in str(caught.value)
