"""Python decoders and encoders as Arrow functions of Spark: a column of bytes ↔ a column of structs.

A record that does not decode fills `_corrupt` with its reason and stack; anything that is not the record's fault (a
registry that is away) goes up and stops the batch, which then runs again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from penstock.pipelines.formats.base import CORRUPT, described
from penstock.pipelines.formats.registry import RegistryError


def decoding_function(decode: Callable[[bytes], dict[str, Any]], columns: Any) -> Callable[[Any], Any]:
    import pyarrow as pa
    from pyspark.sql.functions import arrow_udf
    from pyspark.sql.types import StringType, StructField, StructType

    from penstock.pipelines.formats.arrow_types import arrow_struct

    whole = StructType([*columns.fields, StructField(CORRUPT, StringType())])

    def decode_all(values: pa.Array) -> pa.Array:
        kind = arrow_struct(whole)
        rows = [None if value is None else _decoded(decode, value) for value in values.to_pylist()]
        try:
            return pa.array(rows, kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            return pa.array([_fitting(row, kind) for row in rows], kind)

    # Arrow reads a function's kind from its hints, which must be real classes here.
    decode_all.__annotations__ = {"values": pa.Array, "return": pa.Array}
    # Not deterministic: or Spark would run it once for the filter and again for the columns.
    return arrow_udf(decode_all, whole).asNondeterministic()


def _decoded(decode: Callable[[bytes], dict[str, Any]], value: bytes) -> dict[str, Any]:
    try:
        return decode(value)
    except RegistryError:
        raise
    except Exception as error:
        return {CORRUPT: json.dumps(described(error))}


def _fitting(row: dict[str, Any] | None, kind: Any) -> dict[str, Any] | None:
    """One row of a column that did not convert as a whole: find those to blame."""
    import pyarrow as pa

    try:
        pa.array([row], kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        return {CORRUPT: json.dumps(described(error))}
    return row


def explained(corrupt: str) -> tuple[str, str]:
    """What `decoding_function` left in `_corrupt`."""
    reason, stack = json.loads(corrupt)
    return reason, stack


def encoding_function(encode: Callable[[dict[str, Any]], bytes]) -> Callable[[Any], Any]:
    import pyarrow as pa
    from pyspark.sql.functions import arrow_udf

    def encode_all(rows: pa.Array) -> pa.Array:
        return pa.array([None if row is None else encode(row) for row in rows.to_pylist()], pa.binary())

    encode_all.__annotations__ = {"rows": pa.Array, "return": pa.Array}
    return arrow_udf(encode_all, "binary").asNondeterministic()
