"""The Spark session of a pipeline: views of its own, and whether its cluster works for it."""

from __future__ import annotations

import weakref
from typing import Any, Final

# What Spark puts into the environment of every streaming source that is written in Python.
_PUT_BY_SOURCES: Final = ("SPARK_LOCAL_DIRS", "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE", "SPARK_PYTHON_RUNTIME")


def is_remote(spark: Any) -> bool:
    """Whether Spark is a Connect server: then there is no JVM here to ask."""
    return not hasattr(spark, "_jsparkSession")


def closed_in_time(spark: Any) -> Any:
    """A session of a Connect server whose connection ends before Python's threads do.

    PySpark closes it when the session is collected. Left to the very end of the process, that waits for ever for a
    thread which is gone: a run that has done everything would not end.
    """
    weakref.finalize(spark, spark.client.close)
    return spark


def settle_environment(spark: Any) -> Any:
    """To be called before two queries may start at once: the entries they will put are there already. Returns them.

    All sources of ours share one map in the JVM that is not made for threads. Two that add an entry at the same moment
    leave its count wrong for ever, and from then on every query fails with "Task not serializable" (Illegal size of
    collection). To replace an entry changes no count.
    """
    manager = spark._jsparkSession.sessionState().dataSourceManager()
    entries = manager.lookupDataSource("penstock").dataSourceCls().envVars()
    for name in _PUT_BY_SOURCES:
        if name not in entries:
            entries[name] = ""
    return entries


def fresh_session(spark: Any) -> Any:
    """Shares Spark itself with `spark`, but no views; this thread's session from now on."""
    if is_remote(spark):
        return closed_in_time(spark.cloneSession())  # with its settings; it has no views
    made = spark.newSession()
    # A sink's format is looked up in the session of the thread that starts the query, and in none if it has none.
    made._get_j_spark_session_class(made._jvm).setActiveSession(made._jsparkSession)
    return made


def missing_executors(spark: Any) -> str | None:
    """Why nothing happens: a cluster without room for an executor lets its queries wait, and only its log says so."""
    if is_remote(spark):
        return None
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
