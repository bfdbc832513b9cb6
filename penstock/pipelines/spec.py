"""What a pipeline is: frozen data, checked before anything runs. YAML, SQL and Python all end here.

Sources, views and sinks have names; a view or sink reads what is declared above it. What a connector, an operator or a
format wants to know is checked against its own options, so that a typing error is found here, with its place.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from penstock.pipelines.durations import Duration
from penstock.pipelines.schedule import Schedule

Path = tuple[str | int, ...]
_CRON_FIELDS = 5


class SpecError(Exception):
    """A pipeline that cannot be: where, and what to do about it, in one line."""

    def __init__(self, message: str, path: Path = (), place: str = "") -> None:
        super().__init__(f"{place}: {message}" if place else message)
        self.message = message
        self.path = path
        self.place = place


class Frozen(BaseModel):
    """Base of everything declared: unknown keys are errors, nothing changes afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


def _identifier(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_]\w{0,99}", name):
        raise ValueError(f"{name!r} is no name for a table: use letters, digits and _")
    return name


def _pipeline_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][\w.\-]{0,79}", name):
        raise ValueError(f"{name!r} is no name for a pipeline: use up to 80 letters, digits, '.', '_' and '-'")
    return name


TableName = Annotated[str, AfterValidator(_identifier)]
PipelineName = Annotated[str, AfterValidator(_pipeline_name)]


class Watermark(Frozen):
    """How late rows may be: those older than the newest time seen minus `delay` may be left out of windows."""

    column: str  # the one with the event's time, a timestamp
    delay: Duration = "10 seconds"  # how late a row may be


class SourceSpec(Frozen):
    """Where rows come from."""

    connector: str = "topic"  # a connector's name, or `module:Class` of your own
    options: dict[str, Any] = Field(default_factory=dict)  # the connector's; they may stand beside it instead
    watermark: Watermark | None = None  # how late its rows may be


class ViewSpec(Frozen):
    """Exactly one of: SQL over what is declared above, a Python function, or an operator."""

    sql: str | None = None  # Spark's SQL over what is declared above it
    python: str | None = None  # `module:function`, which takes DataFrames and returns one
    operator: str | None = None  # an operator's name
    from_: tuple[str, ...] = Field(default=(), alias="from")  # tables it reads; a function's parameters when absent
    options: dict[str, Any] = Field(default_factory=dict)  # the operator's; they may stand beside it instead
    watermark: Watermark | None = None  # how late its rows may be

    @field_validator("from_", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _exactly_one(self) -> ViewSpec:
        given = [name for name in ("sql", "python", "operator") if getattr(self, name) is not None]
        if len(given) != 1:
            what = f"{' and '.join(given)} are given" if given else "none is given"
            raise ValueError(f"a view has exactly one of sql, python and operator; {what}")
        if self.python is not None and not re.fullmatch(r"[\w.]+:\w+", self.python):
            raise ValueError(f"python is {self.python!r}; write module:function")
        if self.operator is not None and not self.from_:
            raise ValueError("an operator needs from: the view or source that it reads")
        return self


class SinkSpec(Frozen):
    """Where the rows of one view or source go."""

    from_: str = Field(alias="from")  # the view or source whose rows it writes
    connector: str = "topic"  # a connector's name, or `module:Class` of your own
    options: dict[str, Any] = Field(default_factory=dict)  # the connector's; they may stand beside it instead
    output_mode: Literal["append", "update", "complete"] = "append"  # new rows, changed rows, or the whole result


class Expectation(Frozen):
    """Rows of a view for which `condition` is not true are dropped, sent to the dead-letter topic, or stop all."""

    view: str  # the view or source that it is about
    condition: str  # SQL; a row for which it is unknown does not meet it
    name: str | None = None  # what messages call it; the condition when absent
    action: Literal["drop", "dead-letter", "fail"] = "drop"  # what to do with rows that do not meet it

    @property
    def label(self) -> str:
        return self.name or self.condition

    @property
    def step(self) -> str:
        """What letters call it, if its condition raised at their row."""
        return f"expectation {self.label!r} of {self.view}"


class Trigger(Frozen):
    """When a batch is made. One of: every `interval`, `available_now` (until caught up, then end), `real_time`."""

    interval: Duration | None = None  # a batch every so often; with no key at all, one right after the other
    available_now: bool = False  # do what is there, then end
    real_time: Duration | None = None  # refused: Spark's real-time mode takes no source or sink in Python

    @model_validator(mode="after")
    def _at_most_one(self) -> Trigger:
        if sum((self.interval is not None, self.available_now, self.real_time is not None)) > 1:
            raise ValueError("a trigger is one of interval, available-now and real-time")
        return self


class Alert(Frozen):
    """Who is told when an applied pipeline lags, fails, or gets no rows; and again when that is over."""

    when: Literal["lag", "failed", "no-data"]  # too many records are not read yet; it failed; it gets no rows
    above: int | None = Field(default=None, ge=0)  # for `lag`: more records than this
    lasting: Duration = "1 minute"  # for `lag` and `no-data`: for so long
    to: str = "log"  # `log`, `topic:NAME`, or `webhook:URL`, which gets the alert as JSON by POST

    @model_validator(mode="after")
    def _complete(self) -> Alert:
        if (self.when == "lag") != (self.above is not None):
            raise ValueError("above says how much lag is too much: it belongs to when: lag, and to nothing else")
        if not re.fullmatch(r"log|topic:[\w.\-]{1,249}|webhook:(https?://|\$\{).+", self.to):
            raise ValueError(f"to is {self.to!r}; write log, topic:NAME or webhook:URL")
        return self

    @property
    def label(self) -> str:
        return f"lag above {self.above}" if self.when == "lag" else self.when


class Settings(Frozen):
    """Where and how the pipeline runs."""

    master: str | None = None  # where Spark runs; `SPARK_MASTER`, or all cores of the machine, when absent
    spark: dict[str, str] = Field(default_factory=dict)  # Spark's own `spark.*` settings
    requirements: tuple[str, ...] = ()  # Python packages for its functions, as pip reads them; carried to all workers
    kafka: dict[str, str] = Field(default_factory=dict)  # client properties, on top of the command's
    dead_letter_topic: str | None = None  # `<pipeline>.dlq` when absent
    max_rows_per_trigger: int | None = Field(default=None, gt=0)  # per batch, for topics without such a limit
    on_row_error: Literal["dead-letter", "fail"] = "dead-letter"  # if a row makes a step raise: aside, or stop
    max_error_rate: float | None = Field(default=None, ge=0, le=1)  # more rows that raise, of the last ones: stop
    error_window: int = Field(default=1000, gt=0)  # how many rows are the last ones, counted in whole batches
    checkpoints: str | None = None  # a folder that every runner can write; the runner's state folder when absent


class Late(Frozen):
    """Rows that come too late for a stateful step, which drops them: written to a topic, and counted."""

    topic: str | None = None  # `<pipeline>.late` when absent


class PipelineSpec(Frozen):
    """Everything that a pipeline's file can say."""

    name: PipelineName  # up to 80 letters, digits, `.`, `_` and `-`; its consumer group is `penstock.<name>`
    sources: dict[TableName, SourceSpec] = Field(min_length=1)  # at least one
    views: dict[TableName, ViewSpec] = Field(default_factory=dict)  # tables made of what is declared above them
    sinks: dict[TableName, SinkSpec] = Field(min_length=1)  # at least one
    expectations: tuple[Expectation, ...] = ()  # what must hold for rows
    trigger: Trigger = Trigger(interval="1 second")  # when a batch is made
    schedule: Schedule | None = None  # when a runner starts it, if its trigger is available-now; once when absent
    late: Late | None = None  # where rows go that a stateful step drops because of its watermark; nowhere when absent
    settings: Settings = Settings()  # where and how it runs
    alerts: tuple[Alert, ...] = ()  # whom a runner tells when something is wrong with it
    modules: dict[str, str] = Field(default_factory=dict)  # Python code that views name, stored with an applied spec

    @property
    def dead_letter_topic(self) -> str:
        return self.settings.dead_letter_topic or f"{self.name}.dlq"

    @property
    def late_topic(self) -> str:
        return (self.late.topic if self.late is not None else None) or f"{self.name}.late"

    def to_data(self) -> dict[str, Any]:
        """What `from_data` takes, without what is at its default. References to secrets stay references."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def from_data(data: Any) -> PipelineSpec:
    """A checked pipeline; SpecError carries the path of what is wrong."""
    spec = shape_of(data)
    from penstock.pipelines.spec_check import check

    check(spec)
    return spec


def shape_of(data: Any) -> PipelineSpec:
    """Checked by itself alone: no connector or operator is loaded, so that no code of theirs runs here."""
    if not isinstance(data, Mapping):
        raise SpecError("a pipeline is a mapping with name, sources and sinks")
    spec: PipelineSpec = validated(PipelineSpec, _shaped(data))
    return spec


def _shaped(data: Mapping[str, Any]) -> dict[str, Any]:
    """Short forms made long: connector options stand beside the connector's name, `topic: x` means connector topic."""
    shaped = dict(data)
    for section, own in (
        ("sources", {"connector", "watermark", "options"}),
        ("sinks", {"from", "from_", "connector", "output_mode", "options"}),
        ("views", {"sql", "python", "operator", "from", "from_", "watermark", "options"}),
    ):
        entries = data.get(section)
        if isinstance(entries, Mapping):
            shaped[section] = {name: _with_options(entry, section, own) for name, entry in entries.items()}
    trigger = data.get("trigger")
    if isinstance(trigger, str):
        shaped["trigger"] = {"available_now": True} if trigger == "available-now" else _trigger(trigger)
    elif isinstance(trigger, Mapping):
        shaped["trigger"] = {str(key).replace("-", "_"): value for key, value in trigger.items()}
    late = data.get("late")
    if isinstance(late, bool | str):
        shaped["late"] = ({"topic": late} if isinstance(late, str) else {}) if late else None
    schedule = data.get("schedule")
    if isinstance(schedule, str):
        shaped["schedule"] = {"cron" if len(schedule.split()) == _CRON_FIELDS else "every": schedule}
    return shaped


def _trigger(text: str) -> dict[str, Any]:
    return {"real_time": "5 minutes"} if text == "real-time" else {"interval": text}


def _with_options(entry: Any, section: str, own: set[str]) -> Any:
    if not isinstance(entry, Mapping):
        return {"sql": entry} if section == "views" and isinstance(entry, str) else entry
    if section == "views" and "operator" not in entry:
        return dict(entry)
    made = {key: value for key, value in entry.items() if key in own}
    given = entry.get("options", {})
    if isinstance(given, Mapping):  # else it is refused as it is
        made["options"] = {**given, **{key: value for key, value in entry.items() if key not in own}}
    return made


def validated(model: type[Any], data: Any, prefix: Path = ()) -> Any:
    """Pydantic's first complaint as one SpecError, with the nearest known key for an unknown one."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        # An unknown key explains a missing one; say that first.
        first = min(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
        path = (*prefix, *(part for part in first["loc"] if part != "[key]"))
        raise SpecError(_sentence(first, model, path), path) from None


def _sentence(problem: Mapping[str, Any], model: type[BaseModel], path: Path) -> str:
    where = ".".join(str(part) for part in path)
    if problem["type"] == "extra_forbidden":
        known = known_keys(model, problem["loc"][:-1])
        return unknown_key(str(path[-1]), ".".join(str(part) for part in path[:-1]), known)
    if problem["type"] == "missing":
        return f"{where} is missing"
    if problem["type"] == "union_tag_invalid":
        return _unknown_word(where, str(problem["ctx"]["tag"]), problem["ctx"]["expected_tags"])
    reason = problem["msg"].removeprefix("Value error, ")
    return f"{where}: {reason[:1].lower()}{reason[1:]}" if where else reason


def _unknown_word(where: str, word: str, expected: str) -> str:
    """`expected`: as Pydantic lists them, each in quotes."""
    known = [one.strip(" '") for one in expected.split(",")]
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"{where}: there is no {word!r}; {f'did you mean {near[0]!r}?' if near else f'known are {expected}'}"


def unknown_key(key: str, where: str, known: list[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(known))}"
    return f"unknown key {key!r}{f' in {where}' if where else ''}; {hint}"


def known_keys(model: type[BaseModel], loc: Path) -> list[str]:
    """The keys that a model knows at a place inside it."""
    current: Any = model
    for part in loc:
        if isinstance(current, type) and issubclass(current, BaseModel):
            for name, field in current.model_fields.items():
                if part in (name, field.alias):
                    current = _model_in(field.annotation)
                    break
    if isinstance(current, type) and issubclass(current, BaseModel):
        return [field.alias or name for name, field in current.model_fields.items()]
    return []


def _model_in(annotation: Any) -> Any:
    """The model inside `Model | None`, `dict[str, Model]` or `tuple[Model, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _model_in(argument)
        if found is not None:
            return found
    return None
