"""The channels of an active controller: one for each registration that exists, none for those that are gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from penstock.cluster.channels import BrokerChannel
from penstock.cluster.image import BrokerRegistration, ImageDelta


class BrokerChannels:
    """`open_channel` makes the one to a broker."""

    def __init__(self, open_channel: Callable[[BrokerRegistration], BrokerChannel]) -> None:
        self._open_channel = open_channel
        self._channels: dict[int, BrokerChannel] = {}
        self._retired: set[asyncio.Task[None]] = set()

    def align(self, brokers: Mapping[int, BrokerRegistration]) -> None:
        """These brokers are registered now."""
        for broker_id, channel in list(self._channels.items()):
            known = brokers.get(broker_id)
            if known is None or known.epoch != channel.broker.epoch:
                del self._channels[broker_id]
                task = asyncio.ensure_future(channel.close())
                self._retired.add(task)
                task.add_done_callback(self._retired.discard)
        for broker_id, broker in sorted(brokers.items()):
            if broker_id not in self._channels:
                self._channels[broker_id] = self._open_channel(broker)

    def offer(self, delta: ImageDelta) -> None:
        """To every broker."""
        for channel in self._channels.values():
            channel.offer(delta)

    async def close(self) -> None:
        channels, self._channels = list(self._channels.values()), {}
        await asyncio.gather(*(channel.close() for channel in channels))
