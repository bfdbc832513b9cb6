"""Spark's own pages: what a driver says of them, and what they never show."""

from __future__ import annotations

import re

from penstock.pipelines.control import events
from penstock.pipelines.spark import web_ui


def test_names_of_secrets_and_of_what_references_fill_are_hidden() -> None:
    made = web_ui.settings({"spark.hadoop.fs.odd": "${env:PENSTOCK_ODD}", "spark.plain": "1"}, local=True)
    for regex in (made["spark.redaction.regex"], made["spark.sql.redaction.options.regex"]):
        hides = re.compile(regex)
        assert all(hides.search(name) for name in ("spark.hadoop.fs.odd", "my.Password", "sasl.jaas.config"))
        assert not hides.search("spark.plain")
    assert made["spark.ui.killEnabled"] == "false"


def test_away_from_this_machine_the_pages_stay_closed() -> None:
    assert web_ui.settings({}, local=False) == {"spark.ui.enabled": "false"}


def test_a_state_without_pages_forgets_those_of_the_driver_before() -> None:
    known: dict[str, dict[str, object]] = {}
    pages = {"host": "h", "port": 4040, "app": "local-1"}
    told = {"pipeline": "p", "kind": events.STATE, "at_ms": 1}
    events.fold(known, [{**told, "state": "running", "spark_ui": pages}])
    assert known["p"]["spark_ui"] == pages
    events.fold(known, [{**told, "state": "failed", "error": "e"}])
    assert known["p"]["spark_ui"] is None
