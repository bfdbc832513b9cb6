"""`branch`: one table into several by conditions, each row into the first that holds. `merge`: several into one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from penstock.pipelines.operators.base import Operator
from penstock.pipelines.spec import Frozen, TableName


class Branch(Operator):
    """The view itself holds the rows that no case takes."""

    class Options(Frozen):
        cases: dict[TableName, str] = Field(min_length=1)  # view → condition in SQL, tried in this order

    @classmethod
    def extra_views(cls, view: str, options: Any) -> list[str]:
        return list(options.cases)

    def apply(self, inputs: Sequence[Any]) -> Mapping[str, Any]:
        from pyspark.sql import functions as F  # noqa: N812

        rest = self.one(inputs)
        made: dict[str, Any] = {}
        taken = F.lit(False)
        for name, condition in self.options.cases.items():
            holds = F.coalesce(F.expr(condition).cast("boolean"), F.lit(False))
            made[name] = rest.where(holds & ~taken)
            taken = taken | holds
        made[self.view] = rest.where(~taken)
        return made


class Merge(Operator):
    """All rows of all tables, columns matched by name; what a table lacks is null."""

    class Options(Frozen):
        pass

    def apply(self, inputs: Sequence[Any]) -> Mapping[str, Any]:
        merged = inputs[0]
        for other in inputs[1:]:
            merged = merged.unionByName(other, allowMissingColumns=True)
        return {self.view: merged}
