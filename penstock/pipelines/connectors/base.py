"""The contract of a connector. A new one is a class with `Options` and one method.

A **source** has `load()`, which gives a streaming DataFrame (plus, if records can be bad, those for the dead-letter
topic), or a static one, which is read anew for every batch that joins it.

A **sink** has `write(rows, batch)`, called once per batch with a plain DataFrame. After a crash the last batch comes
again with the same `batch.query` and `batch.number`, possibly with other rows if the pipeline is not deterministic. The
sink must then do nothing if it had finished, and otherwise undo or overwrite what it had begun: that is all there is to
exactly once. `prepare` may add columns inside the stream; `check` complains about columns before anything runs.

    class Mine(Sink):
        class Options(Frozen):
            folder: str

        def write(self, rows, batch): ...

and in a pipeline `connector: my_module:Mine`. Options arrive with secrets looked up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from penstock.pipelines.formats.dead_letters import RETRY_SUFFIX
from penstock.pipelines.spec import Frozen, SpecError
from penstock.pipelines.storage import Storage


@dataclass(frozen=True)
class Context:
    """Where a pipeline is planned."""

    spark: Any
    pipeline: str
    properties: Mapping[str, str]  # of the Kafka client, bootstrap.servers among them
    state: Storage  # what the pipeline keeps beside its checkpoints
    max_rows_per_trigger: int | None = None
    given: Mapping[str, str] = field(default_factory=dict)  # `pipeline test`: source → folder with its records
    dead_letter_topic: str = ""
    from_beginning: bool = False  # a backfill: wherever the spec says to start
    unnamed_retries: str = ""  # the source that takes records of the retry topic that name none
    guarded: bool = False  # rows that make a step raise are held back
    needed: Mapping[str, frozenset[str]] | None = None  # if guarded: table → columns that anybody computes
    is_named: bool = False  # tables stand in plans by their names, as they do if guarded
    ranges: Mapping[str, Any] | None = None  # source → offsets: a plain table of exactly these records
    between_ms: tuple[int, int] | None = None  # of these records those with a timestamp from the one up to the other
    lookups: frozenset[str] = frozenset()  # sources that others look things up in: read whole before anything else

    @property
    def retry_topic(self) -> str:
        """Where redriven letters come back for this pipeline alone."""
        return f"{self.pipeline}{RETRY_SUFFIX}"

    @property
    def spark_options(self) -> dict[str, str]:
        """The client's properties as options of `format("penstock")`."""
        return {f"kafka.{name}": value for name, value in self.properties.items()}


@dataclass(frozen=True)
class Loaded:
    rows: Any
    bad: Any = None  # rows in the shape of a topic: key, value, headers


@dataclass(frozen=True)
class Batch:
    """One batch of one query: the same pair comes again only as a repetition."""

    query: str  # unique to the query's checkpoint
    number: int
    is_backfill: bool = False  # the first batch of a backfill: what is in a table is to be replaced
    prefix: str | None = None  # of the names by which topics know it
    is_anew: bool = False  # the pipeline was reset: what a table remembers of another checkpoint is over
    whole_name: str | None = None  # by what the only sink knows it, if Spark streamed into that sink before

    def name_for(self, sink: str) -> str:
        """By what a sink remembers the batches of this query."""
        if self.whole_name is not None:
            return self.whole_name
        return f"{self.prefix if self.prefix is not None else f'{self.query}-'}{sink}"

    def is_done(self, remembered: int | None, sink: str) -> bool:
        """Whether the sink has this batch; one that has later ones belongs to another course of events."""
        if remembered is not None and remembered > self.number:
            raise SpecError(
                f"sink {sink} has batch {remembered} of this query already, but the checkpoint is at batch"
                f" {self.number}: it is an older copy. Put the right one back, or use --reset or --backfill"
            )
        return remembered == self.number


class Source(ABC):
    Options: ClassVar[type[Frozen]]

    def __init__(self, name: str, options: Any, context: Context) -> None:
        self.name, self.options, self.context = name, options, context

    @abstractmethod
    def load(self) -> Loaded: ...

    def identity(self) -> str:
        """What a checkpoint's offsets belong to; another identity does not fit the checkpoint."""
        return type(self).__name__


class Sink(ABC):
    Options: ClassVar[type[Frozen]]

    def __init__(self, name: str, options: Any, context: Context) -> None:
        self.name, self.options, self.context = name, options, context

    def check(self, columns: Any) -> None:
        """Raise SpecError if rows with these columns cannot be written."""
        return

    def prepare(self, rows: Any) -> Any:
        return rows

    @abstractmethod
    def write(self, rows: Any, batch: Batch) -> None: ...

    def opens_transactions(self) -> bool:
        """Whether it writes to topics in transactions, which are then known before the first one opens."""
        return False

    def native(self) -> tuple[str, dict[str, str]] | None:
        """Spark's format and options, if Spark can stream into this sink exactly once without our help."""
        return None
