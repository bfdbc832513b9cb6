"""Spark's own pages beside a driver: on loopback, to look at only, secrets hidden; the console shows them after login.

A driver starts its session with `settings` and tells `place` with its state `running` as `spark_ui`. The console takes
the pages from there if it runs on the same machine.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from penstock.pipelines.secrets import has_reference

_SECRET = "secret|password|passwd|token|credential|jaas|access[.]?key|api[._-]?key|redaction"
_KEPT = "200"  # of jobs, stages, queries: a driver runs for months


def settings(given: Mapping[str, str], *, local: bool) -> dict[str, str]:
    """What turns the pages on; `given` are the pipeline's own settings, with references where secrets belong.

    Away from this machine Spark would open its pages to everybody: there they stay closed.
    """
    if not local:
        return {"spark.ui.enabled": "false"}
    hidden = "|".join([_SECRET, *(re.escape(name) for name, value in given.items() if has_reference(str(value)))])
    return {
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.ui.killEnabled": "false",
        "spark.ui.retainedJobs": _KEPT,
        "spark.ui.retainedStages": _KEPT,
        "spark.ui.retainedTasks": "20000",
        "spark.sql.ui.retainedExecutions": _KEPT,
        "spark.sql.streaming.ui.retainedQueries": _KEPT,
        "spark.redaction.regex": f"(?i){hidden}",
        "spark.sql.redaction.options.regex": f"(?i)url|{hidden}",
    }


def place(spark: Any) -> dict[str, Any] | None:
    """Where this session's pages are: {host, port, app}; None if it has none."""
    if not hasattr(spark, "_jsparkSession"):
        return None  # a Connect server's pages are its own matter
    context = spark.sparkContext
    address = urlsplit(context.uiWebUrl or "")
    if address.port is None:
        return None
    return {"host": socket.gethostname(), "port": address.port, "app": context.applicationId}
