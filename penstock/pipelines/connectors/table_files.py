"""A folder of files that grows by whole batches, each exactly once, and shrinks again by compaction.

Files lie directly in the folder, so that anything that reads a folder of Parquet reads the table. Beside them:

- `_penstock/commits/<query>-<batch>.json`: the batch is complete, and these are its files;
- `_penstock/staging/…`: being written;
- `_penstock/compaction.json`: a compaction that has decided what it replaces; whoever opens the table next finishes it.

A file's name begins with its query and batch, so a batch that comes again finds and removes what its first try left.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any, Final

from penstock.pipelines.connectors.base import Batch
from penstock.pipelines.storage import Storage, is_local

_OWN: Final = "_penstock"
_COMMITS: Final = f"{_OWN}/commits"
_STAGING: Final = f"{_OWN}/staging"
_COMPACTION: Final = f"{_OWN}/compaction.json"
_COMMITS_KEPT: Final = 100  # per query: only the last one can ever come again


class TableFiles:
    def __init__(self, folder: Storage, kind: str, options: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self._kind = kind
        self._options = dict(options or {})

    def write(self, rows: Any, batch: Batch) -> bool:
        """True if the batch was written now, False if it had been before."""
        commit = f"{_COMMITS}/{batch.query}-{batch.number:010d}.json"
        if batch.is_done(self._last_batch(batch.query), self.folder.root):
            return False
        self.finish_compaction()
        prefix = f"part-{batch.query}-{batch.number:010d}-"
        for name in self.files():
            if name.startswith(prefix):
                self.folder.delete(name)
        staged = f"{_STAGING}/{batch.query}-{batch.number}"
        self._write(rows, staged)
        if batch.is_backfill:
            for name in self.files():
                self.folder.delete(name)
        files = self._publish(staged, prefix)
        self.folder.write_text(commit, json.dumps({"files": files}))
        self._forget_old_commits(batch.query)
        return True

    def _write(self, rows: Any, staged: str) -> None:
        rows.write.format(self._kind).options(**self._options).mode("overwrite").save(self.folder.at(staged))

    def _publish(self, staged: str, prefix: str) -> list[str]:
        files = []
        for index, name in enumerate(self.folder.names(staged)):
            if not name.startswith(("_", ".")) and self._has_rows(f"{staged}/{name}"):
                files.append(f"{prefix}{index:05d}.{name.partition('.')[2]}")
                self.folder.move(f"{staged}/{name}", files[-1])
        self.folder.delete(staged)
        return files

    def _has_rows(self, name: str) -> bool:
        """Many batches of a stream are empty, for which Spark writes a file all the same."""
        if self.folder.size(name) == 0:
            return False
        if self._kind != "parquet" or not is_local(self.folder.root):
            return True
        from pyarrow import parquet

        return bool(parquet.read_metadata(self.folder.at(name)).num_rows)

    def _commits(self, query: str) -> list[str]:
        return sorted(name for name in self.folder.names(_COMMITS) if name.startswith(f"{query}-"))

    def _last_batch(self, query: str) -> int | None:
        own = self._commits(query)
        return int(own[-1].removesuffix(".json").rpartition("-")[2]) if own else None

    def _forget_old_commits(self, query: str) -> None:
        for name in self._commits(query)[:-_COMMITS_KEPT]:
            self.folder.delete(f"{_COMMITS}/{name}")

    def files(self) -> list[str]:
        return [name for name in self.folder.names() if not name.startswith(("_", "."))]

    # --- compaction ---

    def compact(self, spark: Any, small_bytes: int, at_least: int) -> int:
        """Make one file of all small ones if there are `at_least` so many; returns how many were replaced."""
        self.finish_compaction()
        small = [name for name in self.files() if self.folder.size(name) < small_bytes]
        if len(small) < at_least:
            return 0
        name = f"compacted-{uuid.uuid4().hex}"
        staged = f"{_STAGING}/{name}"
        rows = spark.read.format(self._kind).load([self.folder.at(item) for item in small])
        self._write(rows.coalesce(1), staged)
        # From here on the compaction happens, whatever crashes.
        self.folder.write_text(_COMPACTION, json.dumps({"staged": staged, "prefix": f"{name}-", "replaced": small}))
        self.finish_compaction()
        return len(small)

    def finish_compaction(self) -> None:
        decided = self.folder.read_text(_COMPACTION)
        if decided is None:
            return
        plan = json.loads(decided)
        # New before old: a reader in between sees rows twice, which it can notice, but never misses any.
        self._publish(plan["staged"], plan["prefix"])
        for name in plan["replaced"]:
            self.folder.delete(name)
        self.folder.delete(_COMPACTION)
