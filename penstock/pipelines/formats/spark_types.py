"""Spark's simple types by their SQL names. PySpark's own parser asks a running JVM, which a format must not need."""

from __future__ import annotations

from typing import Any


def simple_type(name: str) -> Any:
    from pyspark.sql import types as T  # noqa: N812

    known = {
        "boolean": T.BooleanType(),
        "int": T.IntegerType(),
        "bigint": T.LongType(),
        "float": T.FloatType(),
        "double": T.DoubleType(),
        "string": T.StringType(),
        "binary": T.BinaryType(),
        "date": T.DateType(),
        "timestamp": T.TimestampType(),
        "timestamp_ntz": T.TimestampNTZType(),
        "decimal(20,0)": T.DecimalType(20, 0),
    }
    return known[name]
