"""The contract of an operator: named options, tables in, one table out (and, for a branch, more)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from penstock.pipelines.spec import Frozen, SpecError


class Operator(ABC):
    Options: ClassVar[type[Frozen]]

    def __init__(self, view: str, options: Any) -> None:
        self.view, self.options = view, options

    @classmethod
    def extra_views(cls, view: str, options: Any) -> list[str]:
        """Names of the views that it makes beside its own."""
        return []

    @abstractmethod
    def apply(self, inputs: Sequence[Any]) -> Mapping[str, Any]:
        """View name → DataFrame."""

    def one(self, inputs: Sequence[Any]) -> Any:
        if len(inputs) != 1:
            raise SpecError(f"view {self.view}: this operator reads exactly one table, not {len(inputs)}")
        return inputs[0]

    def need(self, rows: Any, *names: str) -> None:
        """The columns must be there."""
        import difflib

        for name in names:
            if name not in rows.columns:
                near = difflib.get_close_matches(name, rows.columns, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(rows.columns)}"
                raise SpecError(f"view {self.view}: there is no column {name!r}; {hint}")


def packed(rows: Any, names: Sequence[str]) -> Any:
    """Some columns as one struct: what a state holds."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.struct(*[F.col(f"`{name}`") for name in names])


def plain_columns(rows: Any, without: Sequence[str] = ()) -> list[str]:
    """The columns that are data: not those that describe a record."""
    return [name for name in rows.columns if not name.startswith("_") and name not in without]


def struct_of(rows: Any, names: Sequence[str]) -> Any:
    from pyspark.sql.types import StructType

    return StructType([rows.schema[name] for name in names])
