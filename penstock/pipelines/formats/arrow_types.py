"""The Arrow type that Spark expects for a struct: the one place that touches this inner function of PySpark."""

from __future__ import annotations

from typing import Any


def arrow_struct(columns: Any) -> Any:
    from pyspark.sql.pandas.types import to_arrow_type

    return to_arrow_type(columns, timezone="UTC")
