"""Checks across a pipeline's parts: do connectors and operators know their options, do the names lead anywhere?

All of it works without Spark: `penstock pipeline validate` is this.
"""

from __future__ import annotations

import difflib
import re
from typing import Final

from penstock.pipelines import connectors, operators
from penstock.pipelines.secrets import has_reference
from penstock.pipelines.spec import PipelineSpec, SpecError, validated

ANSI: Final = "spark.sql.ansi.enabled"
NULLS_FOR_ERRORS: Final = (
    "without it an error (a cast, a division) gives NULL, which nobody could tell from a value; leave it on, and write"
    " try_cast, try_divide and the like where NULL is meant"
)


def check(spec: PipelineSpec) -> None:
    known: list[str] = []
    for name, source in spec.sources.items():
        kind = connectors.source(source.connector, ("sources", name, "connector"))
        validated(kind.Options, source.options, ("sources", name))
        known.append(name)
    for name, view in spec.views.items():
        if name in known:
            raise SpecError(f"there are two tables named {name!r}", ("views", name))
        _holds_no_secret(view.sql, ("views", name))
        for wanted in view.from_:
            _must_be_known(wanted, known, ("views", name, "from"))
        if view.operator is not None:
            operator = operators.find(view.operator, ("views", name, "operator"))
            options = validated(operator.Options, view.options, ("views", name))
            known += operator.extra_views(name, options)
        known.append(name)
    for name, sink in spec.sinks.items():
        _must_be_known(sink.from_, known, ("sinks", name, "from"))
        sink_kind = connectors.sink(sink.connector, ("sinks", name, "connector"))
        validated(sink_kind.Options, sink.options, ("sinks", name))
    for index, expectation in enumerate(spec.expectations):
        _must_be_known(expectation.view, known, ("expectations", index, "view"))
        _holds_no_secret(expectation.condition, ("expectations", index, "condition"))
    _check_circles(spec)
    _check_real_time(spec)
    if str(spec.settings.spark.get(ANSI, "true")).strip().lower() != "true":
        raise SpecError(f"settings.spark.{ANSI}: {NULLS_FOR_ERRORS}", ("settings", "spark", ANSI))
    if spec.schedule is not None and not spec.trigger.available_now:
        hint = "a pipeline that runs all the time has none; give it trigger: available-now"
        raise SpecError(f"schedule: {hint}", ("schedule",))


def _holds_no_secret(text: str | None, path: tuple[str | int, ...]) -> None:
    if text is not None and has_reference(text):
        where = ".".join(map(str, path))
        raise SpecError(f"{where}: a secret in SQL would end in plans and rows; give it to a connector's options", path)


def _must_be_known(name: str, known: list[str], path: tuple[str | int, ...]) -> None:
    if name in known:
        return
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"declared above are {', '.join(known)}"
    raise SpecError(f"{'.'.join(map(str, path))}: there is no view or source {name!r}; {hint}", path)


def _check_circles(spec: PipelineSpec) -> None:
    """What a pipeline writes aside, or to a topic that a pattern takes in by chance, would come back to it for ever."""
    aside = [("dead letters", spec.dead_letter_topic)]
    aside += [("late rows", spec.late_topic)] if spec.late is not None else []
    written = [(f"what sink {name} writes", str(sink.options.get("topic"))) for name, sink in spec.sinks.items()]
    for name, source in spec.sources.items():
        if source.connector != "topic":
            continue
        pattern = _pattern(source.options.get("pattern"), name)
        read = {source.options.get("topic"), *(source.options.get("topics") or ())}
        for what, topic in [*aside, *(written if pattern is not None else [])]:
            if topic in read or (pattern is not None and pattern.fullmatch(topic)):
                raise SpecError(
                    f"sources.{name}: it reads {topic}, where this pipeline writes {what}: they would come back for"
                    " ever; read them in another pipeline, or give the topic another name",
                    ("sources", name),
                )


def _pattern(text: str | None, source: str) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        path = ("sources", source, "pattern")
        raise SpecError(f"sources.{source}.pattern: {text!r} is no regular expression: {error}", path) from None


def _check_real_time(spec: PipelineSpec) -> None:
    """Spark's real-time mode takes streams of its JVM that support it, and a fixed list of sinks (Spark 4.3).

    A source in Python is always a PythonMicroBatchStream there, which does not support it; saying so now is shorter
    than what Spark says once the query has started.
    """
    if spec.trigger.real_time is None:
        return
    raise SpecError(
        "trigger: Spark's real-time mode takes no source or sink in Python, as ours are (INPUT_STREAM_NOT_SUPPORTED:"
        " PythonMicroBatchStream); use an interval, for example 100 ms",
        ("trigger",),
    )
