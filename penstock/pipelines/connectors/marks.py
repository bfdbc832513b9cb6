"""What a table remembers about the pipeline that writes to it: the checkpoint's own id and the last batch.

The mark is written together with the rows. A batch that comes again finds it and does nothing. A mark of another
checkpoint means that this one would write again what is there, so it is an error, unless the pipeline was reset;
whoever was replaced by a reset may write no more.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from penstock.pipelines.connectors.base import Batch
from penstock.pipelines.spec import SpecError

_REPLACED_KEPT: Final = 10


@dataclass(frozen=True)
class Mark:
    checkpoint: str
    batch: int
    replaced: tuple[str, ...] = ()  # checkpoints that resets have ended, the newest first

    @classmethod
    def parse(cls, text: str | None) -> Mark | None:
        if not text:
            return None
        made = json.loads(text)
        return cls(made["checkpoint"], made["batch"], tuple(made["replaced"]))

    def text(self) -> str:
        return json.dumps({"checkpoint": self.checkpoint, "batch": self.batch, "replaced": self.replaced})


def mark_name(pipeline: str, sink: str) -> str:
    """By what a table knows a sink of a pipeline, whichever checkpoint it has."""
    return f"penstock.{pipeline}.{sink}"


def next_mark(present: Mark | None, batch: Batch, sink: str) -> Mark | None:
    """What to write with the batch; None if the table has it already."""
    if present is None:
        return Mark(batch.query, batch.number)
    if present.checkpoint == batch.query:
        return None if batch.is_done(present.batch, sink) else Mark(batch.query, batch.number, present.replaced)
    if batch.query in present.replaced or not batch.is_anew:
        raise SpecError(
            f"sink {sink}: the table was written by another checkpoint of this pipeline ({present.checkpoint}, up to"
            f" batch {present.batch}); this one ({batch.query}) would write it again. Run the pipeline where its"
            " checkpoint is, give this one another name, or use --reset (the sink gets everything again) or --backfill"
        )
    return Mark(batch.query, batch.number, (present.checkpoint, *present.replaced)[:_REPLACED_KEPT])
