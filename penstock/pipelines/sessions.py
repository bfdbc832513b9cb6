"""A Spark session with views of its own, for one pipeline."""

from __future__ import annotations

from typing import Any


def fresh_session(spark: Any) -> Any:
    """Shares Spark itself with `spark`, but no views and no settings."""
    return spark.newSession()
