"""Cluster members without data: identity, image and controller of several brokers in one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from penstock.base.settings import Settings
from penstock.cluster.channels import PushTransport
from penstock.cluster.image import BrokerRegistration, Endpoint
from penstock.cluster.image_codec import ImagePush, ImagePushAnswer, decode_answer, encode_push, format_for
from penstock.cluster.member import ClusterMember
from penstock.store.interface import TreeStore

WAIT_SECONDS = 30.0


class Wire:
    """Carries pushes between members as bytes; `cut` makes a member unreachable."""

    def __init__(self) -> None:
        self.members: dict[int, ClusterMember] = {}
        self.cut: set[int] = set()
        self.cut_ways: set[tuple[int, int]] = set()
        self.full_images: dict[int, int] = {}
        self.formats: dict[int, int] = {}

    def transport(self, source: int, broker: BrokerRegistration) -> PushTransport:
        return _WireTransport(self, source, broker)


class _WireTransport:
    def __init__(self, wire: Wire, source: int, broker: BrokerRegistration) -> None:
        self._wire = wire
        self._source = source
        self._broker_id = broker.broker_id
        self._format = format_for(broker)

    async def push(self, push: ImagePush) -> ImagePushAnswer:
        way = (self._source, self._broker_id)
        if way in self._wire.cut_ways or self._broker_id in self._wire.cut or self._broker_id not in self._wire.members:
            raise TimeoutError(f"broker {self._broker_id} cannot be reached")
        self._wire.formats[self._broker_id] = self._format
        if push.full is not None:
            self._wire.full_images[self._broker_id] = self._wire.full_images.get(self._broker_id, 0) + 1
        return decode_answer(await self._wire.members[self._broker_id].receive_push(encode_push(push, self._format)))

    def close(self) -> None:
        pass


class Member(ClusterMember):
    wire: Wire

    def _transport_to(self, broker: BrokerRegistration) -> PushTransport:
        return self.wire.transport(self.node_id, broker)


async def join(
    wire: Wire, store: TreeStore, broker_id: int, features: dict[str, tuple[int, int]] | None = None, **settings: str
) -> Member:
    given = {"broker.id": str(broker_id), "zookeeper.session.timeout.ms": "4000"}
    given |= {name.replace("_", "."): value for name, value in settings.items()}
    member = Member(Settings.load(None, given), store, features=features)
    member.wire = wire
    await member.join()
    wire.members[member.node_id] = member
    await member.register({"PLAINTEXT": Endpoint("127.0.0.1", 9000 + broker_id)})
    return member


@asynccontextmanager
async def cluster(
    new_session: Callable[[], TreeStore], count: int, **settings: str
) -> AsyncIterator[tuple[Wire, list[Member]]]:
    wire = Wire()
    members: list[Member] = []
    try:
        for number in range(1, count + 1):
            members.append(await join(wire, new_session(), number, **settings))  # noqa: PERF401 - one after another
        await agree(members, lambda m: len(m.image.brokers) == count)
        yield wire, members
    finally:
        for member in reversed(members):
            await member.leave()


async def agree(members: list[Member], condition: Callable[[Member], bool]) -> None:
    """Every member's image satisfies the condition, within a generous time."""
    for member in members:
        reached = await member.images.wait_until(lambda _, member=member: condition(member), WAIT_SECONDS)  # type: ignore[misc]
        assert reached, f"broker {member.node_id} still sees {member.image}"


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():
            await asyncio.sleep(0.01)
