"""Where quotas meet requests: the hot handlers get a metered form while quotas are set, and lose it when none is.

Pauses go into the answer as its throttle time, and the connection is not read for so long.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from time import perf_counter
from types import coroutine
from typing import TYPE_CHECKING, Any

from penstock.broker.network.wire import INT32
from penstock.security.quota_limits import QuotaLimits
from penstock.security.quota_nodes import quotas_in
from penstock.security.quotas import ClientQuotas

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Dispatcher
    from penstock.broker.network.connection import Connection
    from penstock.broker.routes import HotHandler, Route
    from penstock.cluster.image import MetadataImage

# Answers that begin with their throttle time, from this version on.
_THROTTLE_TIME_FIRST = {1: 1, 3: 3, 8: 3, 12: 1}


class QuotaMetering:
    """Keeps `broker.quotas` and the handlers in step with the image."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._quotas: ClientQuotas | None = None  # kept while none is set, so that usage is not forgotten

    def take(self, image: MetadataImage) -> None:
        limits = QuotaLimits(quotas_in(image.configs))
        if not limits.for_clients and not limits.for_addresses:
            self._broker.quotas = None
        else:
            if self._quotas is None:
                self._quotas = ClientQuotas(self._broker.settings, self._broker.clock, self._broker.metrics)
            self._quotas.take(limits)
            self._broker.quotas = self._quotas
        self._broker.dispatcher.meter_requests(limits.for_clients)


def metered_by_time(dispatcher: Dispatcher, route: Route, plain: HotHandler) -> HotHandler:
    """A hot handler whose time counts; the pause is written into the answer that it has made."""
    first_version = _THROTTLE_TIME_FIRST.get(route.spec.key, 99)

    def handle_frame(connection: Connection, version: int, correlation_id: int, position: int, end: int) -> None:
        quotas = dispatcher.broker.quotas
        if quotas is None or not quotas.measures_time:
            plain(connection, version, correlation_id, position, end)
            return
        client_id = dispatcher.client_id(connection)
        began = perf_counter()
        plain(connection, version, correlation_id, position, end)
        pause_ms = quotas.worked(connection, client_id, perf_counter() - began)
        if pause_ms and not connection.closed:
            parts = connection.slots[-1].parts if connection.slots else None
            if parts and version >= first_version:
                told = _with_throttle(parts[0], pause_ms, version >= route.first_flexible)
                connection.slots[-1].parts = [told, *parts[1:]]
            connection.mute(pause_ms / 1000)

    return handle_frame


def _with_throttle(answer: Any, pause_ms: int, flexible: bool) -> bytearray:
    changed = bytearray(answer)
    INT32.pack_into(changed, 9 if flexible else 8, pause_ms)
    return changed


class Stopwatch:
    """The time that a coroutine itself runs, without what it waits."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @coroutine
    def run(self, work: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
        step, value = work.send, None
        while True:
            began = perf_counter()
            try:
                waits_for = step(value)
            except StopIteration as done:
                return done.value
            finally:
                self.seconds += perf_counter() - began
            try:
                step, value = work.send, (yield waits_for)
            except BaseException as error:
                step, value = work.throw, error
