"""One process that answers questions about pipelines with Spark, for one that must not hold it: lines of JSON.

Each line of its input is a question, `{"ask": "check" | "dry_run" | "sql", …}`; each gets one line of answer, a mapping
with what was asked for, or with `error`. Spark starts with the first question that needs it. It ends with its input.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TextIO

from penstock.pipelines import adhoc_guard, spec_yaml
from penstock.pipelines.secrets import OF_RUNNERS, allow, plain_secrets, redacted
from penstock.pipelines.spec import PipelineSpec, SpecError

SETTINGS = {"spark.master": "local[2]", "spark.driver.memory": "1g", **adhoc_guard.SETTINGS}


def check(question: Mapping[str, Any]) -> dict[str, Any]:
    """Is it a pipeline? Connectors and operators are asked too."""
    spec = _loaded(question["text"])
    return {"name": spec.name, "sources": list(spec.sources), "views": list(spec.views), "sinks": list(spec.sinks)}


def dry_run(question: Mapping[str, Any]) -> dict[str, Any]:
    """What the sinks of a pipeline would get of the given records; nothing is written anywhere."""
    from penstock.pipelines.trial import run_given

    spec = _loaded(question["text"])
    given = {name: rows for name, rows in question["given"].items() if name in spec.sources}
    outputs = run_given(spec, _spark(), given, list(spec.sinks))
    limit = int(question.get("limit", 20))
    return {"sinks": {name: [_plain(row) for row in rows[:limit]] for name, rows in outputs.items()}}


def sql(question: Mapping[str, Any]) -> dict[str, Any]:
    """Rows of one SELECT over topics, at most so many."""
    from penstock.pipelines.adhoc import Defaults, query

    adhoc_guard.insist_on_select(question["text"])
    limit = int(question["limit"])
    defaults = Defaults(question.get("format") or "json", question.get("since"), question.get("until"))
    rows = query(question["text"].strip().rstrip(";"), _spark(), question["properties"], defaults)
    found = rows.limit(limit + 1).collect()
    return {
        "columns": [{"name": item.name, "type": item.dataType.simpleString()} for item in rows.schema.fields],
        "rows": [[_plain(value) for value in row] for row in found[:limit]],
        "more": len(found) > limit,
    }


QUESTIONS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {"check": check, "dry_run": dry_run, "sql": sql}


def _loaded(text: str) -> PipelineSpec:
    spec = spec_yaml.load_text(text)
    for path in plain_secrets(spec.to_data()):
        raise SpecError(f"{'.'.join(path)} is a secret in plain text; write ${{env:NAME}} or ${{file:PATH}}", path)
    return spec


def _spark() -> Any:
    from penstock.pipelines.spark.session import session

    return session("penstock workbench", master=SETTINGS["spark.master"], settings=SETTINGS, log_level="off")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if hasattr(value, "asDict"):
        return _plain(value.asDict())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return str(value)
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def answer(line: str) -> dict[str, Any]:
    from penstock.pipelines.problems import reason_of

    question = json.loads(line)
    try:
        return QUESTIONS[question["ask"]](question)
    except SpecError as error:
        return {"error": error.message, "place": error.place, "path": [str(part) for part in error.path]}
    except Exception as error:
        return {"error": redacted(reason_of(error)), "place": "", "path": []}


def serve(lines: Iterable[str], out: TextIO) -> None:
    for line in lines:
        with contextlib.redirect_stdout(io.StringIO()):  # what connectors print is no answer
            told = answer(line)
        out.write(json.dumps(told) + "\n")
        out.flush()


def main() -> None:
    allow(OF_RUNNERS)
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # nor is what Java prints
    serve(sys.stdin, out)


if __name__ == "__main__":
    main()
