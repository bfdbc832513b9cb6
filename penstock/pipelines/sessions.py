"""The Spark session of a pipeline: views of its own, and whether its cluster works for it."""

from __future__ import annotations

from typing import Any


def fresh_session(spark: Any) -> Any:
    """Shares Spark itself with `spark`, but no views and no settings."""
    return spark.newSession()


def missing_executors(spark: Any) -> str | None:
    """Why nothing happens: a cluster without room for an executor lets its queries wait, and only its log says so."""
    context = spark.sparkContext
    if context.master.startswith("local"):
        return None
    if context._jsc.sc().getExecutorMemoryStatus().size() > 1:  # the driver counts as one
        return None
    settings = context.getConf()
    memory = settings.get("spark.executor.memory", "1g")
    cores = settings.get("spark.executor.cores", "1")
    return (
        f"{context.master} has sent no executor yet, so nothing runs. Is a worker registered there with {memory} of "
        f"memory and {cores} core(s) free? A pipeline asks for less by spark.executor.memory and .cores"
    )
