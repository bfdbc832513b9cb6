"""The pipeline of the proof: one source, two views, and every kind of table that is written exactly once, at once.

`history` appends each input, tombstones too, with a step that never gives the same twice; `changes` is merged by key,
with deletes. The tables of PostgreSQL come last, so what is in them is everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

NAME, SOURCE, TARGET = "eos-everywhere", "eos-changes", "eos-history"
HISTORY, MERGED = "history", "merged"  # tables of PostgreSQL and Iceberg, folders of Delta


@dataclass(frozen=True)
class Places:
    folder: Path
    database: str  # postgresql://…
    master: str
    rows_per_batch: int

    def delta(self, table: str) -> str:
        return str(self.folder / "delta" / table)

    @property
    def catalog(self) -> dict[str, str]:
        """Of Iceberg, in the same database."""
        uri = self.database.replace("postgresql://", "postgresql+psycopg://", 1)
        return {"type": "sql", "uri": uri, "warehouse": f"file://{self.folder / 'iceberg'}"}

    def write_spec(self, run: int) -> Path:
        """`run` is in every row, so that it can be told which run wrote it."""
        file = self.folder / f"run-{run}.yml"
        file.write_text(yaml.safe_dump(self._spec(run), sort_keys=False))
        return file

    def _spec(self, run: int) -> dict[str, Any]:
        iceberg = {"connector": "iceberg", "catalog": self.catalog}
        sql = {"connector": "sql", "url": self.database}
        return {
            "name": NAME,
            "sources": {
                "inputs": {
                    "topic": SOURCE,
                    "format": {"type": "json", "schema": "i BIGINT"},
                    "on_bad_record": "drop",
                    "starting": "earliest",
                }
            },
            "views": {
                "history": f"SELECT _key AS k, i, _partition AS p, _offset AS o, {run} AS run, uuid() AS luck"
                " FROM inputs DISTRIBUTE BY rand()",
                "changes": f"SELECT _key AS k, i, {run} AS run, _tombstone, _partition, _offset FROM inputs",
            },
            "sinks": {
                "topic": {"from": "history", "topic": TARGET, "key": "luck"},
                "delta_history": {"from": "history", "connector": "delta", "path": self.delta(HISTORY)},
                "iceberg_history": {"from": "history", **iceberg, "table": f"eos.{HISTORY}"},
                "sql_history": {"from": "history", **sql, "table": HISTORY},
                "delta_merged": {"from": "changes", "connector": "delta", "path": self.delta(MERGED), "key": ["k"]},
                "iceberg_merged": {"from": "changes", **iceberg, "table": f"eos.{MERGED}", "key": ["k"]},
                "sql_merged": {"from": "changes", **sql, "table": MERGED, "key": ["k"]},
            },
            "trigger": "100 ms",
            "settings": {
                "master": self.master,
                "max_rows_per_trigger": self.rows_per_batch,
                "spark": {
                    "spark.executor.memory": "512m",
                    "spark.executor.cores": "1",
                    "spark.cores.max": "2",
                    "spark.sql.shuffle.partitions": "3",
                    # Most of them live for seconds only: nothing is worth being optimized.
                    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
                    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
                },
            },
        }
