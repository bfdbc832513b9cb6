"""Checks across a pipeline's parts: do connectors and operators know their options, do the names lead anywhere?

All of it works without Spark: `penstock pipeline validate` is this.
"""

from __future__ import annotations

import difflib

from penstock.pipelines import connectors, operators
from penstock.pipelines.secrets import has_reference
from penstock.pipelines.spec import PipelineSpec, SpecError, validated


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
    _check_real_time(spec)
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
