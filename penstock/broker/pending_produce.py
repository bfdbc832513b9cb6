"""Produces between their appends and their answers, as they stand in the order of their connection."""

from __future__ import annotations

from penstock.broker.connection import Connection, Slot
from penstock.broker.produce_codec import PartitionResult, Results
from penstock.broker.produce_shape import ProduceShape


class PendingProduce(Slot):
    """A produce between its appends and its answer."""

    __slots__ = ("acks", "connection", "correlation_id", "results", "stands_for", "timeout_ms", "version")

    connection: Connection
    correlation_id: int
    version: int
    acks: int
    timeout_ms: int
    results: Results
    stands_for: Slot | None  # the shaped one in the connection's order that it replaces; None: it stands there itself


class ShapedProduce(Slot):
    """The same for a request of its connection's usual shape: one partition, appended without error."""

    __slots__ = (
        "append_time_ms",
        "base_offset",
        "connection",
        "correlation_id",
        "log_start_offset",
        "required_offset",
        "shape",
    )

    connection: Connection
    correlation_id: int
    shape: ProduceShape
    base_offset: int
    append_time_ms: int
    log_start_offset: int
    required_offset: int

    def as_general(self) -> PendingProduce:
        """What it takes to answer it with an error, or later."""
        shape = self.shape
        result = PartitionResult(shape.index)
        result.base_offset = self.base_offset
        result.append_time_ms = self.append_time_ms
        result.log_start_offset = self.log_start_offset
        result.required_offset = self.required_offset
        result.partition = shape.partition
        general = PendingProduce()
        general.stands_for = self
        general.connection = self.connection
        general.correlation_id = self.correlation_id
        general.version = shape.version
        general.acks = shape.acks
        general.timeout_ms = shape.timeout_ms
        general.results = [(shape.name, [result])]
        return general
