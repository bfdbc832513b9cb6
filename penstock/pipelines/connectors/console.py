"""Rows on the terminal of whoever runs the pipeline: for trying things out."""

from __future__ import annotations

import json
import sys
from typing import Any

from pydantic import Field

from penstock.pipelines.connectors.base import Batch, Sink
from penstock.pipelines.spec import Frozen


class ConsoleSink(Sink):
    class Options(Frozen):
        rows: int = Field(default=20, gt=0)  # at most so many of a batch

    def write(self, rows: Any, batch: Batch) -> None:
        for row in rows.limit(self.options.rows).toJSON().collect():
            sys.stdout.write(json.dumps({"sink": self.name, "batch": batch.number}) + " " + row + "\n")
        sys.stdout.flush()
