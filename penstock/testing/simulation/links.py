"""What one simulated broker holds of another: connections for its fetchers, channels for the controller's images."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.client.connection import Posted
from penstock.client.errors import ClientError, ConnectionLost
from penstock.cluster.image_codec import ImagePush, ImagePushAnswer
from penstock.protocol import messages

if TYPE_CHECKING:
    from penstock.testing.simulation.coordinating import SimBroker
    from penstock.testing.simulation.life import Life
    from penstock.testing.simulation.node import SimCluster, SimNode

CALL_TIMEOUT_SECONDS = 2.0
BETWEEN_BROKERS = {"write_txn_markers": 2, "add_partitions_to_txn": 5}
"""What coordinators ask other brokers, and in which version."""


class SimConnection:
    """What a fetcher holds: a connection from one life to another."""

    expired = False

    def __init__(self, cluster: SimCluster, source: Life, target: SimNode) -> None:
        self._cluster = cluster
        self._source = source
        self._target = target
        self._target_life = target.life
        self.closed = False

    def close(self) -> None:
        self.closed = True

    def post(
        self,
        api_key: int,
        version: int,
        body: bytes,
        on_answer: Callable[[memoryview], None],
        on_lost: Callable[[BaseException], None],
    ) -> Posted:
        posted = Posted(on_answer, on_lost)
        self._cluster.world.spawn(self._exchange(api_key, version, bytes(body), posted))
        return posted

    async def _exchange(self, api_key: int, version: int, body: bytes, posted: Posted) -> None:
        request = messages.decode_request(api_key, version, body)
        life = self._target_life
        try:
            response = await self._cluster.world.call(
                self._source, life, lambda: self._target.fetches.handle(life, request), CALL_TIMEOUT_SECONDS
            )
        except ClientError as error:
            posted.set_exception(error)
        else:
            header = bytes(5)  # correlation id and no tagged fields
            posted.set_result(memoryview(header + bytes(messages.encode_response(api_key, version, response))))

    async def request(self, api_name: str, request: Any) -> Any:
        life, target = self._target_life, self._target
        if api_name in BETWEEN_BROKERS:
            broker, sender = self._broker(), int(self._source.name)
            return await self._cluster.world.call(
                self._source,
                life,
                lambda: broker.handle(api_name, BETWEEN_BROKERS[api_name], request, sender),
                CALL_TIMEOUT_SECONDS,
            )
        return await self._cluster.world.call(
            self._source, life, lambda: target.handle_list_offsets(life, request), CALL_TIMEOUT_SECONDS
        )

    async def request_bytes(self, api_key: int, version: int, body: bytes) -> bytes:
        broker = self._broker()
        return await self._cluster.world.call(
            self._source, self._target_life, lambda: broker.fence(body), CALL_TIMEOUT_SECONDS
        )

    def _broker(self) -> SimBroker:
        if self._target.broker is None:
            raise ConnectionLost("it has no coordinators yet")
        return self._target.broker


class SimTransport:
    """Image pushes to another node."""

    def __init__(self, cluster: SimCluster, source: Life, target: SimNode) -> None:
        self._cluster = cluster
        self._source = source
        self._target = target

    async def push(self, push: ImagePush) -> ImagePushAnswer:
        life = self._target.life
        return await self._cluster.world.call(
            self._source, life, lambda: self._target.handle_push(life, push), CALL_TIMEOUT_SECONDS
        )

    def close(self) -> None:
        pass
