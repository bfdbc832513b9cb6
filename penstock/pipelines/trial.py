"""`penstock pipeline test`: a pipeline on given records, without a cluster, and what its sinks would get.

    - name: negative amounts go
      given:
        orders:
          - {key: a, value: {id: a, amount: 1.5}}
          - {value: "{broken"}
      expect:
        out:
          - {id: a, amount: 1.5}
        dead-letters: 1

Records of a topic have key, value (a mapping is encoded by the source's format), timestamp (ISO) and headers; for other
sources a record is simply its columns. Expected rows are compared without regard to order; columns that are not named
are not compared. A number means: so many rows.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml

from penstock.pipelines import plan
from penstock.pipelines.connectors.base import Context
from penstock.pipelines.connectors.topic import RAW_COLUMNS
from penstock.pipelines.execution import POLL_SECONDS
from penstock.pipelines.formats.base import parse_ddl
from penstock.pipelines.plan import DEAD_LETTERS
from penstock.pipelines.problems import reason_of
from penstock.pipelines.progress import is_idle
from penstock.pipelines.sessions import fresh_session
from penstock.pipelines.spec import PipelineSpec, SpecError
from penstock.pipelines.storage import storage


@dataclass
class CaseResult:
    name: str
    differences: list[str] = field(default_factory=list)


def run_cases(spec: PipelineSpec, spark: Any, path: Path) -> list[CaseResult]:
    return [run_case(spec, spark, case) for case in read_cases(spec, path)]


def read_cases(spec: PipelineSpec, path: Path) -> list[dict[str, Any]]:
    """Checked as far as it goes without Spark."""
    try:
        cases = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError(f"{path}: {error.strerror}") from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise SpecError(f"{path}: {error}") from None
    if not isinstance(cases, list) or not all(isinstance(case, dict) for case in cases):
        raise SpecError(f"{path}: a list of cases is expected, each with name, given and expect")
    for case in cases:
        check_case(spec, case)
    return cases


def check_case(spec: PipelineSpec, case: Mapping[str, Any]) -> None:
    unknown = set(case) - {"name", "given", "expect"}
    if unknown:
        raise SpecError(f"a case has name, given and expect, but not {sorted(unknown)[0]!r}")
    for name in case.get("given", {}):
        if name not in spec.sources:
            raise SpecError(f"there is no source {name!r}; there are {', '.join(spec.sources)}")
    for name in case.get("expect", {}):
        if name not in spec.sinks and name != DEAD_LETTERS:
            raise SpecError(f"there is no sink {name!r}; there are {', '.join([*spec.sinks, DEAD_LETTERS])}")


def run_case(spec: PipelineSpec, spark: Any, case: Mapping[str, Any]) -> CaseResult:
    check_case(spec, case)
    result = CaseResult(str(case.get("name", "unnamed")))
    outputs = run_given(spec, spark, case.get("given", {}), list(case.get("expect", {})))
    for sink, expected in case.get("expect", {}).items():
        result.differences += [f"{sink}: {line}" for line in _compare(expected, outputs[sink])]
    return result


def run_given(
    spec: PipelineSpec, spark: Any, given: Mapping[str, list[Any]], sinks: list[str]
) -> dict[str, list[dict[str, Any]]]:
    """sink → the rows that it would get; for your own tests in Python."""
    with tempfile.TemporaryDirectory(prefix="penstock-test-") as folder:
        inputs = {name: _write_input(spec, spark, name, given.get(name, []), folder) for name in spec.sources}
        context = Context(
            spark=fresh_session(spark),
            pipeline=spec.name,
            properties={},
            state=storage(f"{folder}/state"),
            given={name: place for name, place in inputs.items() if place},
            dead_letter_topic=spec.dead_letter_topic,
        )
        graph = plan.build(spec, context)
        return {name: _collect(spec, graph, name, folder) for name in sinks}


def _write_input(spec: PipelineSpec, spark: Any, name: str, records: list[Any], folder: str) -> str:
    place = f"{folder}/{name}"
    if spec.sources[name].connector != "topic":
        if spec.sources[name].connector not in ("files", "generator", "postgres"):
            return ""  # a static table is read from where it is
        Path(place).mkdir()
        lines = [json.dumps(record, default=str) for record in records]
        Path(place, "given.json").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return place
    options = spec.sources[name].options
    rows = [_raw(record, options, index) for index, record in enumerate(records)]
    spark.createDataFrame(rows, parse_ddl(RAW_COLUMNS, spark)).coalesce(1).write.parquet(place)
    return place


def _raw(record: Any, options: Mapping[str, Any], index: int) -> tuple[Any, ...]:
    if not isinstance(record, Mapping) or set(record) - {"key", "value", "timestamp", "headers"}:
        raise SpecError(f"record {index}: a record of a topic has key, value, timestamp and headers, all optional")
    at = record.get("timestamp", datetime(2026, 1, 1, tzinfo=UTC))
    if isinstance(at, str):
        at = datetime.fromisoformat(at)
    headers = [(key, str(value).encode()) for key, value in (record.get("headers") or {}).items()]
    key = record.get("key")
    return (
        None if key is None else str(key).encode(),
        _encoded(record.get("value"), options),
        options.get("topic") or "given",
        0,
        index,
        at,
        0,
        headers,
    )


def _encoded(value: Any, options: Mapping[str, Any]) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    form = options.get("format", "json")
    kind = form if isinstance(form, str) else form.get("type")
    if kind == "avro" and isinstance(form, Mapping) and form.get("schema") and not form.get("registry"):
        from penstock.pipelines.formats.avro import write_value

        return write_value(form["schema"], value)
    return json.dumps(value, default=str).encode()


def _collect(spec: PipelineSpec, graph: plan.Graph, name: str, folder: str) -> list[dict[str, Any]]:
    rows = plan.dead_letter_rows(graph) if name == DEAD_LETTERS else graph.tables[spec.sinks[name].from_]
    if rows is None:
        return []
    found: list[dict[str, Any]] = []

    def take(batch: Any, number: int) -> None:
        found.extend(row.asDict(recursive=True) for row in batch.collect())

    mode = "append" if name == DEAD_LETTERS else spec.sinks[name].output_mode
    writer = rows.writeStream.foreachBatch(take).outputMode(mode).trigger(availableNow=True)
    query = writer.option("checkpointLocation", f"{folder}/checkpoint-{name}").start()
    try:
        while not query.awaitTermination(POLL_SECONDS):
            if is_idle(query):
                break
    except Exception as error:
        raise SpecError(f"{name}: {reason_of(error)}") from None
    finally:
        query.stop()
    return found


def _compare(expected: Any, found: list[dict[str, Any]]) -> list[str]:
    if isinstance(expected, int):
        return [] if expected == len(found) else [f"{expected} rows are expected, there are {len(found)}"]
    left = [_plain(row) for row in found]
    problems = []
    for wanted in (_plain(item) for item in expected):
        match = next(
            (row for row in left if all(row.get(key, "(none)") == value for key, value in wanted.items())), None
        )
        if match is None:
            problems.append(f"missing {json.dumps(wanted, default=str)}")
        else:
            left.remove(match)
    return problems + [f"unexpected {json.dumps(row, default=str)}" for row in left]


def _plain(value: Any) -> Any:
    """Both sides in one shape: times as ISO text in UTC, decimals as numbers, bytes as text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    if isinstance(value, str):
        try:
            return _plain(datetime.fromisoformat(value)) if len(value) > 10 and value[4] == "-" else value
        except ValueError:
            return value
    return value
