"""Produces between their appends and their answers, as they stand in the order of their connection."""

from __future__ import annotations

from penstock.broker.network.connection import Connection, Slot
from penstock.broker.produce.codec import PartitionResult, Results
from penstock.broker.produce.shape import ProduceShape
from penstock.broker.stats import ApiStats
from penstock.log.results import AppendResult


class PendingProduce(Slot):
    """A produce between its appends and its answer."""

    __slots__ = (
        "acks",
        "connection",
        "correlation_id",
        "results",
        "stands_for",
        "throttle_ms",
        "timeout_ms",
        "version",
    )

    def __init__(
        self,
        connection: Connection,
        correlation_id: int,
        version: int,
        acks: int,
        timeout_ms: int,
        started: float,
        stats: ApiStats,
    ) -> None:
        super().__init__(started, stats)
        self.connection = connection
        self.correlation_id = correlation_id
        self.version = version
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.results: Results = []
        self.throttle_ms = 0  # the pause that a quota demands
        self.stands_for: Slot | None = None  # the shaped one that it replaces in the connection's order


class ShapedProduce(Slot):
    """The same for a request of its connection's usual shape: one partition, appended without error."""

    __slots__ = ("appended", "connection", "correlation_id", "shape")

    def __init__(
        self,
        connection: Connection,
        correlation_id: int,
        shape: ProduceShape,
        appended: AppendResult,
        started: float,
        stats: ApiStats,
    ) -> None:
        self.parts = None  # what Slot sets, without a call
        self.started = started
        self.stats = stats
        self.connection = connection
        self.correlation_id = correlation_id
        self.shape = shape
        self.appended = appended

    def as_general(self) -> PendingProduce:
        """What it takes to answer it with an error, or later."""
        shape = self.shape
        result = PartitionResult(shape.index)
        appended = self.appended
        result.base_offset = appended.base_offset
        result.append_time_ms = appended.append_time_ms
        result.log_start_offset = appended.log_start_offset
        result.required_offset = appended.last_offset + 1
        result.partition = shape.partition
        general = PendingProduce(
            self.connection,
            self.correlation_id,
            shape.version,
            shape.acks,
            shape.timeout_ms,
            self.started,
            self.stats,
        )
        general.stands_for = self
        general.results = [(shape.name, [result])]
        return general
