"""Pipelines in SQL. Statements end with a semicolon:

    SET name = 'orders-clean';
    SET trigger = '5 seconds';
    CREATE SOURCE orders WITH (topic = 'orders', format.type = 'json', format.schema = 'id STRING, amount DOUBLE');
    CREATE VIEW clean AS SELECT id, amount FROM orders WHERE amount > 0;
    CREATE VIEW latest USING `changelog-to-table` FROM orders WITH (key = 'id');
    EXPECT clean (id IS NOT NULL) ELSE DROP;                  -- or DEAD LETTER, or FAIL
    CREATE SINK out FROM clean WITH (topic = 'orders.clean', key = 'id');

Options are those of the YAML form; a dot goes one level down. Everything after AS is Spark's SQL, untouched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import Any, Final

from penstock.pipelines.spec import Path, PipelineSpec, SpecError, from_data

_FLAGS: Final = re.IGNORECASE | re.DOTALL
_SET: Final = re.compile(r"SET\s+([\w.]+)\s*=\s*(.+)", _FLAGS)
_SOURCE: Final = re.compile(r"CREATE\s+SOURCE\s+(\w+)\s+(?:USING\s+(\S+)\s+)?WITH\s*\((.*)\)", _FLAGS)
_VIEW: Final = re.compile(r"CREATE\s+(?:TEMPORARY\s+)?VIEW\s+(\w+)\s+AS\s+(.+)", _FLAGS)
_OPERATOR: Final = re.compile(
    r"CREATE\s+VIEW\s+(\w+)\s+USING\s+`?([\w-]+)`?\s+FROM\s+([\w\s,]+?)(?:\s+WITH\s*\((.*)\))?", _FLAGS
)
_EXPECT: Final = re.compile(r"EXPECT\s+(\w+)\s*\((.+)\)(?:\s+ELSE\s+(DROP|DEAD\s+LETTER|FAIL))?", _FLAGS)
_SINK: Final = re.compile(r"CREATE\s+SINK\s+(\w+)\s+FROM\s+(\w+)(?:\s+USING\s+(\S+))?\s+WITH\s*\((.*)\)", _FLAGS)
_OPTION: Final = re.compile(r"\s*([\w.\-]+)\s*=\s*('(?:[^']|'')*'|-?\d+|true|false)\s*(?:,|$)", re.IGNORECASE)


def load_file(path: FilePath) -> PipelineSpec:
    return load_text(path.read_text(encoding="utf-8"), str(path), path.stem)


def load_text(text: str, place: str = "pipeline", name: str = "pipeline") -> PipelineSpec:
    data: dict[str, Any] = {"name": name, "sources": {}, "views": {}, "sinks": {}, "expectations": []}
    lines: dict[Path, int] = {}
    for statement, line in statements(text):
        try:
            _take(statement, data, lines, line)
        except SpecError as error:
            raise SpecError(error.message, error.path, f"{place}:{line}") from None
    try:
        return from_data(data)
    except SpecError as error:
        line = next((lines[error.path[:n]] for n in range(len(error.path), 0, -1) if error.path[:n] in lines), 1)
        raise SpecError(error.message, error.path, f"{place}:{line}") from None


def statements(text: str) -> Iterator[tuple[str, int]]:
    """(statement without its comments, its first line); a semicolon inside quotes ends nothing."""
    current: list[str] = []
    line = start = 1
    position = 0
    while position < len(text):
        character = text[position]
        if text.startswith("--", position):
            end = text.find("\n", position)
            position = len(text) if end < 0 else end
            continue
        if character in "'\"`":
            end = text.find(character, position + 1)
            if end < 0:
                raise SpecError(f"a {character} is opened and never closed", place=f"line {line}")
            current.append(text[position : end + 1])
            line += text.count("\n", position, end)
            position = end + 1
            continue
        if character == ";":
            if "".join(current).strip():
                yield "".join(current).strip(), start
            current = []
        else:
            if not "".join(current).strip() and not character.isspace():
                start = line
            current.append(character)
        line += character == "\n"
        position += 1
    if "".join(current).strip():
        yield "".join(current).strip(), start


def _take(statement: str, data: dict[str, Any], lines: dict[Path, int], line: int) -> None:
    if found := _SET.fullmatch(statement):
        _put(data, found[1].split("."), _value(found[2].strip()))
        lines[tuple(found[1].split("."))] = line
    elif found := _SOURCE.fullmatch(statement):
        entry = {"connector": found[2] or "topic", **_options(found[3])}
        _new(data, lines, line, "sources", found[1], entry)
    elif found := _OPERATOR.fullmatch(statement):
        inputs = [item.strip() for item in found[3].split(",")]
        _new(data, lines, line, "views", found[1], {"operator": found[2], "from": inputs, **_options(found[4] or "")})
    elif found := _VIEW.fullmatch(statement):
        _new(data, lines, line, "views", found[1], {"sql": found[2]})
    elif found := _EXPECT.fullmatch(statement):
        action = "-".join((found[3] or "drop").lower().split())
        data["expectations"].append({"view": found[1], "condition": found[2].strip(), "action": action})
        lines[("expectations", len(data["expectations"]) - 1)] = line
    elif found := _SINK.fullmatch(statement):
        entry = {"from": found[2], "connector": found[3] or "topic", **_options(found[4])}
        _new(data, lines, line, "sinks", found[1], entry)
    else:
        words = " ".join(statement.split())[:60]
        raise SpecError(f"{words!r} is none of SET, CREATE SOURCE, CREATE VIEW, EXPECT and CREATE SINK")


def _new(data: dict[str, Any], lines: dict[Path, int], line: int, section: str, name: str, entry: Any) -> None:
    if name in data[section]:
        raise SpecError(f"there are two {section} named {name!r}")
    data[section][name] = entry
    lines[(section, name)] = line


def _options(text: str) -> dict[str, Any]:
    made: dict[str, Any] = {}
    position = 0
    while text[position:].strip():
        found = _OPTION.match(text, position)
        if found is None:
            raise SpecError(f"{text[position:].strip()[:40]!r} is no option; write name = 'value'")
        _put(made, found[1].split("."), _value(found[2]))
        position = found.end()
    return made


def _put(target: dict[str, Any], path: list[str], value: Any) -> None:
    for part in path[:-1]:
        inner = target.setdefault(part, {})
        if not isinstance(inner, dict):
            raise SpecError(f"{'.'.join(path)}: {part} has a value already")
        target = inner
    target[path[-1]] = value


def _value(text: str) -> Any:
    if text.startswith("'") and text.endswith("'"):
        return text[1:-1].replace("''", "'")
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return int(text) if re.fullmatch(r"-?\d+", text) else text
