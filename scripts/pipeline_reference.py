"""docs/pipeline-spec.md: every key of a pipeline file, read from the classes that check it.

What a key means is the comment at the end of its field's line, so that whoever reads the class reads the same words.
"""

from __future__ import annotations

import ast
import datetime
import inspect
import io
import re
import sys
import textwrap
import tokenize
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import AfterValidator, BaseModel
from pydantic.fields import FieldInfo

from penstock.pipelines import connectors, operators, spec, spec_yaml
from penstock.pipelines.durations import Duration
from penstock.pipelines.formats import AnyFormat
from penstock.pipelines.formats.base import Format
from penstock.pipelines.formats.registry import RegistryOptions
from penstock.pipelines.schedule import Schedule

EXAMPLES = Path(__file__).resolve().parent.parent / "examples" / "pipelines"
FORMATS: Any = get_args(AnyFormat)[0]  # the union of their classes
PLAINEST = "clean-orders.yml"  # where it shows a part, it shows it best

WORDS: dict[Any, str] = {
    str: "text",
    int: "number",
    bool: "true or false",
    datetime.datetime: "time",
    Any: "anything",
    Duration: "duration such as `10 seconds`",
    FORMATS: "[format](#formats)",
    spec.TableName: "name",
    spec.PipelineName: "text",
    dict[str, Any]: "mapping",
    spec.SourceSpec: "[source](#sources)",
    spec.ViewSpec: "[view](#views)",
    spec.SinkSpec: "[sink](#sinks)",
    spec.Expectation: "[expectation](#expectations)",
    spec.Watermark: "[watermark](#watermark)",
    spec.Late: "[late](#late)",
    spec.Trigger: "[trigger](#trigger)",
    Schedule: "[schedule](#schedule)",
    spec.Alert: "[alert](#alerts)",
    spec.Settings: "[settings](#settings)",
    RegistryOptions: "[registry](#registry)",
}

INTRODUCTION = """\
# Pipeline files

Rendered from the pipelines' classes by `make docs`; do not edit.

[pipelines.md](pipelines.md) tells what pipelines are; this page names every key. Keys are those of the YAML form. In
SQL a dot goes one level down (`WITH (format.type = 'json')`, `SET settings.master = '…'`), in Python they are keyword
arguments. Texts in the options of sources and sinks and in `settings.kafka` may hold `${env:NAME}` or `${file:PATH}`,
which are looked up when the pipeline starts.
"""

# What the classes do for a file before they check it: short forms.
SHORT_FORMS = {
    spec.SourceSpec: "A source without `connector` reads a topic: `orders: {topic: orders}`.",
    spec.ViewSpec: "A view that is only text is SQL: `clean: SELECT …`. `from` takes one name or a list of names. The"
    " [operators](#operators) stand below.",
    spec.SinkSpec: "A sink without `connector` writes to a topic: `out: {from: clean, topic: orders.clean}`.",
    spec.Late: "In short: `late: true` or `late: orders.late`.",
    spec.Trigger: "In short: `trigger: 10 seconds` or `trigger: available-now`.",
    Schedule: "In short: `schedule: 1 hour` or `schedule: 30 6 * * mon-fri`.",
}


def render() -> str:
    examples = Examples()
    formats = {_type_of(kind): kind for kind in get_args(FORMATS)}
    lines = [INTRODUCTION, "## The pipeline\n", *_model(spec.PipelineSpec)]
    for title, model in (
        ("Views", spec.ViewSpec),
        ("Expectations", spec.Expectation),
        ("Watermark", spec.Watermark),
        ("Late", spec.Late),
        ("Trigger", spec.Trigger),
        ("Schedule", Schedule),
        ("Alerts", spec.Alert),
        ("Settings", spec.Settings),
    ):
        lines += [f"## {title}\n", *_model(model)]
    lines += ["## Sources\n", *_model(spec.SourceSpec), *_contents("Source", connectors._SOURCES)]
    for name in connectors._SOURCES:
        lines += _part("Source", name, connectors.source(name), examples)
    lines += ["## Sinks\n", *_model(spec.SinkSpec), *_contents("Sink", connectors._SINKS)]
    for name in connectors._SINKS:
        lines += _part("Sink", name, connectors.sink(name), examples)
    lines += ["## Operators\n", "A view with `operator` and `from`.\n", *_contents("Operator", operators._OPERATORS)]
    for name in operators._OPERATORS:
        lines += _part("Operator", name, operators.find(name), examples)
    lines += ["## Formats\n", "`format: {type: json, …}`, or `format: json` where nothing else is said.\n"]
    lines += _contents("Format", formats)
    for name, kind in formats.items():
        lines += [_heading("Format", name), *_model(kind, examples.link("Format", name))]
    lines += ["### Registry\n", *_model(RegistryOptions)]
    return "\n".join(lines).rstrip("\n") + "\n"


def models() -> Iterator[type[BaseModel]]:
    """Every class whose fields are keys of a pipeline file."""
    yield from (spec.PipelineSpec, spec.SourceSpec, spec.ViewSpec, spec.SinkSpec, spec.Expectation, spec.Watermark)
    yield from (spec.Late, spec.Trigger, Schedule, spec.Alert, spec.Settings, RegistryOptions, *get_args(FORMATS))
    yield from (connectors.source(name).Options for name in connectors._SOURCES)
    yield from (connectors.sink(name).Options for name in connectors._SINKS)
    yield from (operators.find(name).Options for name in operators._OPERATORS)


# --- parts ---


def _part(kind: str, name: str, found: type[Any], examples: Examples) -> list[str]:
    """A connector or an operator."""
    words = [_named_in_module(found, name), found.__dict__.get("__doc__")] if kind == "Operator" else [_said_by(found)]
    text = " ".join(_one_line(item) for item in words if item)
    return [_heading(kind, name), _described(text, examples.link(kind, name)), *_table(found.Options)]


def _model(model: type[BaseModel], example: str = "") -> list[str]:
    return [_described(" ".join(filter(None, (_said_by(model), SHORT_FORMS.get(model)))), example), *_table(model)]


def _heading(kind: str, name: str) -> str:
    return f"### {kind} `{name}`\n"


def _contents(kind: str, names: Mapping[str, Any]) -> list[str]:
    return [" · ".join(f"[{name}](#{kind.lower()}-{name})" for name in names) + "\n"]


def _said_by(found: type[Any]) -> str:
    """What a class says of itself, or else its module's first paragraph."""
    own = found.__dict__.get("__doc__") or (sys.modules[found.__module__].__doc__ or "").split("\n\n")[0]
    return _one_line(own)


def _named_in_module(found: type[Any], name: str) -> str:
    """What the module says after "`name`:"; a module may hold several operators."""
    for paragraph in (sys.modules[found.__module__].__doc__ or "").split("\n\n"):
        text = _one_line(paragraph)
        if said := re.search(rf"`{name}`: (.*?)(?= `[\w-]+`: |$)", text):
            return said[1]
    return ""


def _described(text: str, example: str) -> str:
    return text[:1].upper() + text[1:] + (f" {example}" if example else "") + "\n"


def _one_line(text: str) -> str:
    return " ".join(text.split())


class Examples:
    """Which file under examples/pipelines shows which part."""

    def __init__(self) -> None:
        self._files: dict[tuple[str, str], str] = {}
        files = [path for path in sorted(EXAMPLES.glob("*.yml")) if not path.name.endswith(".cases.yml")]
        for path in sorted(files, key=lambda path: path.name != PLAINEST):
            for part in _parts_of(spec_yaml.load_file(path)):
                self._files.setdefault(part, path.name)

    def link(self, kind: str, name: str) -> str:
        file = self._files.get((kind, name))
        return f"Example: [{file}](../examples/pipelines/{file})." if file else ""


def _parts_of(pipeline: spec.PipelineSpec) -> Iterator[tuple[str, str]]:
    used: list[tuple[str, Any]] = [("Source", source) for source in pipeline.sources.values()]
    used += [("Sink", sink) for sink in pipeline.sinks.values()]
    for kind, entry in used:
        yield kind, entry.connector
        if entry.connector == "topic":
            given = entry.options.get("format", "json")
            yield "Format", given if isinstance(given, str) else given["type"]
    yield from (("Operator", view.operator) for view in pipeline.views.values() if view.operator is not None)


# --- tables ---


def _table(model: type[BaseModel]) -> list[str]:
    meant = meanings(model)
    rows = [
        (f"`{field.alias or name}`", _type(field), _default(field), meant.get(name, ""))
        for name, field in model.model_fields.items()
        if not _is_type_of_format(model, name)
    ]
    if not rows:
        return ["No keys of its own.\n"]
    cells = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return ["| Key | Type | Default | What it means |", "|---|---|---|---|", *cells, ""]


def meanings(model: type[BaseModel]) -> dict[str, str]:
    """Field → the comment at the end of its line."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, BaseModel) and base.__module__.partition(".")[0] != "pydantic":
            found |= _comments(base)
    return found


def without_meaning(model: type[BaseModel]) -> list[str]:
    """Fields whose line ends without a comment. A format's `type` is its name, which needs none."""
    known = meanings(model)
    return [name for name in model.model_fields if name not in known and not _is_type_of_format(model, name)]


def _comments(model: type[BaseModel]) -> dict[str, str]:
    source = textwrap.dedent(inspect.getsource(model))
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    by_line = {token.start[0]: token.string for token in tokens if token.type == tokenize.COMMENT}
    body = next(node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)).body
    return {
        node.target.id: by_line[node.end_lineno].lstrip("# ")
        for node in body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.end_lineno in by_line
    }


def _is_type_of_format(model: type[BaseModel], name: str) -> bool:
    return name == "type" and issubclass(model, Format)


def _type_of(kind: type[Format]) -> str:
    return str(kind.model_fields["type"].default)


def _type(field: FieldInfo) -> str:
    kind: Any = field.annotation
    least: Any
    for item in field.metadata:
        if isinstance(item, annotated_types.Gt):
            least = item.gt
            return f"number from {least + 1}"  # all of them are whole numbers
        if isinstance(item, annotated_types.Ge):
            return f"number from {item.ge}"
        if isinstance(item, AfterValidator):  # pydantic takes it off a type such as Duration
            kind = Annotated[kind, item]
    return _kind_in_said_by(kind)


def _kind_in_said_by(kind: Any) -> str:
    if kind in WORDS:
        return WORDS[kind]
    origin, inside = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return " or ".join(_kind_in_said_by(item) for item in inside if item is not types.NoneType)
    if origin is Literal:
        return "one of " + ", ".join(f"`{value}`" for value in inside)
    if origin is tuple:
        return f"list of {_kind_in_said_by(inside[0])}"
    if origin is dict:
        return f"{_kind_in_said_by(inside[0])} → {_kind_in_said_by(inside[1])}"
    raise LookupError(f"there is no word for {kind} yet; add one to WORDS")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, Format):
        value = _type_of(type(value))
    elif isinstance(value, BaseModel):  # the short form: what it says beyond its defaults
        value = next(iter(value.model_dump(exclude_defaults=True).values()), None)
    elif isinstance(value, bool):
        value = str(value).lower()
    elif isinstance(value, datetime.datetime):
        value = value.isoformat().replace("+00:00", "Z")
    return "" if value in (None, "", (), {}) else f"`{value}`"
