"""A Spark session with views of its own, for one query of one pipeline."""

from __future__ import annotations

import pkgutil
from functools import cache
from typing import Any


def fresh_session(spark: Any) -> Any:
    """Shares Spark itself with `spark`, but no views and no settings."""
    fresh = spark.newSession()
    if not _spark_finds_us():
        from pyspark.errors import AnalysisException

        from pyspark_penstock import DefaultSource

        # Spark looks some of them up in the session of the query, and some in whichever is active.
        for one in (spark, fresh):
            try:
                one.dataSource.register(DefaultSource)
            except AnalysisException as error:  # its Python has another path than ours, and found the source there
                if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                    raise
    return fresh


@cache
def _spark_finds_us() -> bool:
    """Spark lists the folders on Python's path; an editable install of this package is in none of them."""
    return any(module.name == "pyspark_penstock" for module in pkgutil.iter_modules())
