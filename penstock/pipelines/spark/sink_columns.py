"""Which columns a sink takes, as Spark's Kafka sink names them, and how rows are sorted by topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from penstock.pipelines.spark.options import OptionError, SinkOptions

_KINDS: Final = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int", "bigint", "smallint", "tinyint"),
    "headers": ("array<struct<key:string,value:binary>>",),
}


def check_columns(schema: Any, options: SinkOptions) -> None:
    """Complain now, in one line, instead of in a task. Columns of other names are left out, as Spark's sink does."""
    names = [field.name for field in schema.fields]
    if "value" not in names:
        raise OptionError(
            f"a column named value is missing; the rows have {', '.join(names) or 'no columns'}."
            " Make one, for example with to_json(struct(*)) as value"
        )
    if "topic" not in names and options.topic is None:
        raise OptionError("no topic: give the option topic, or a column named topic")
    for field in schema.fields:
        allowed = _KINDS.get(field.name)
        found = field.dataType.simpleString()
        if allowed is not None and found not in allowed:
            raise OptionError(f"column {field.name} is {found}; it must be {' or '.join(allowed)}")


def by_topic(rows: Any, options: SinkOptions) -> Iterator[tuple[str, Any]]:
    """(topic, its rows); the option wins over the column, as in Spark's sink. `rows` is an Arrow record batch."""
    import pyarrow.compute as pc

    if options.topic is not None:
        yield options.topic, rows
        return
    topics = rows.column("topic")
    if topics.null_count:
        raise ValueError("a row without topic: the column topic is null, and the option topic is not given")
    names = pc.unique(topics).to_pylist()
    if len(names) == 1:
        yield names[0], rows
        return
    for name in names:
        yield name, rows.filter(pc.equal(topics, name))
