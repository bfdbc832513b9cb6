"""The contract of a format.

`decode` gives a struct column: the fields of the value and, last, `_corrupt`, which is null for a record that decodes.
`explain` says in words what is wrong with one that does not; it runs on those records only. Columns that begin with `_`
describe a record (topic, offset, …) and are never encoded.
"""

from __future__ import annotations

import traceback
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.pipelines.spec import Frozen, SpecError

CORRUPT: Final = "_corrupt"
MAX_STACK_CHARACTERS: Final = 4000


@dataclass(frozen=True)
class FormatContext:
    """What a format may use to find its schema: Spark, a name for what it keeps, and a sample of the topic."""

    spark: Any
    subject: str  # the topic
    recall: Callable[[], str | None] = field(default=lambda: None)
    keep: Callable[[str], None] = field(default=lambda text: None)
    sample: Callable[[], list[bytes]] = field(default=list)


class Format(Frozen):
    """One way to write a value. Subclasses have a `type` and their options as fields."""

    @abstractmethod
    def columns(self, context: FormatContext) -> Any:
        """The StructType that values decode to."""

    @abstractmethod
    def decode(self, value: Any, columns: Any, context: FormatContext) -> Any:
        """The struct column made of a binary column: the columns and `_corrupt`."""

    @abstractmethod
    def encode(self, rows: Any, names: list[str], context: FormatContext) -> Any:
        """The value column (string or binary) made of these columns of the rows."""

    def explain(self, value: bytes, corrupt: str) -> tuple[str, str]:
        """(reason, stack) of a record that did not decode; `corrupt` is what `decode` left."""
        return corrupt, ""


def described(error: BaseException) -> tuple[str, str]:
    """An exception as (reason in one line, stack)."""
    lines = str(error).splitlines()
    first = lines[0] if lines else ""
    reason = f"{type(error).__name__}: {first}" if first else type(error).__name__
    return reason, "".join(traceback.format_exception(error))[-MAX_STACK_CHARACTERS:]


def parse_ddl(text: str, spark: Any) -> Any:
    """A StructType from `id STRING, amount DOUBLE`; SpecError with Spark's reason."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        parsed = StructType.fromDDL(text)
    except PySparkException as error:
        raise SpecError(f"schema {text!r} is not understood: {str(error).splitlines()[0]}") from None
    if not isinstance(parsed, StructType):
        raise SpecError(f"schema {text!r} is no list of columns; write it like: id STRING, amount DOUBLE")
    return parsed
