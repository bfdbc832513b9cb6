"""A Spark session with views of its own, for one pipeline."""

from __future__ import annotations

from typing import Any


def fresh_session(spark: Any) -> Any:
    """Shares Spark itself with `spark`, but no views and no settings."""
    fresh = spark.newSession()
    # Spark looks a source up in the session of the query, and a sink in whichever is active.
    for one in (spark, fresh):
        _register(one)
    return fresh


def _register(spark: Any) -> None:
    """Spark lists the folders on Python's path for data sources; an editable install of this package is in none."""
    from pyspark.errors import AnalysisException

    from pyspark_penstock import DefaultSource

    try:
        spark.dataSource.register(DefaultSource)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":  # otherwise it was found
            raise
