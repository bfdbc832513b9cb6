"""Carries ISR proposals to the controller: all that are open in one AlterPartition request, one request in flight.

A proposal stays until it is recorded, refused for good, or overtaken by metadata; until then it is sent again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode
from penstock.replication.partition import IsrProposal, Partition

logger = logging.getLogger(__name__)

AlterPartitionCall = Callable[[Any], Awaitable[Any]]
"""Sends an AlterPartition request to whoever is controller now; raises OSError or a client error if it cannot."""


def build_request(broker_id: int, broker_epoch: int, proposals: list[IsrProposal]) -> Any:
    """All proposals as one AlterPartition request."""
    api = messages.api("alter_partition")
    topics: dict[Any, Any] = {}
    for proposal in proposals:
        topic = topics.setdefault(proposal.topic_id, api.request_struct("TopicData")(topic_id=proposal.topic_id))
        members = [
            api.BrokerState(broker_id=member, broker_epoch=epoch)
            for member, epoch in zip(proposal.isr, proposal.broker_epochs, strict=True)
        ]
        topic.partitions.append(
            api.request_struct("PartitionData")(
                partition_index=proposal.index,
                leader_epoch=proposal.leader_epoch,
                new_isr_with_epochs=members,
                partition_epoch=proposal.partition_epoch,
            )
        )
    return api.Request(broker_id=broker_id, broker_epoch=broker_epoch, topics=list(topics.values()))


class IsrSender:
    """One task of a broker."""

    def __init__(self, node_id: int, broker_epoch: Callable[[], int], call: AlterPartitionCall) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._call = call
        self._open: dict[tuple[Any, int], tuple[Partition, IsrProposal]] = {}
        self._wake = asyncio.Event()
        self.retry_seconds = 0.05
        self._failing_since_s: float | None = None

    def propose(self, partition: Partition, proposal: IsrProposal) -> None:
        self._open[(proposal.topic_id, proposal.index)] = (partition, proposal)
        self._wake.set()

    @property
    def failing_s(self) -> float:
        """For how long no ISR change has reached a controller although there are some."""
        since = self._failing_since_s
        return 0.0 if since is None else asyncio.get_running_loop().time() - since

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await asyncio.sleep(0)  # whatever else the same wake-up proposes goes along
            if await self.send_open():
                continue
            await asyncio.sleep(self.retry_seconds)
            self._wake.set()

    async def send_open(self) -> bool:
        """One request with everything open. False: something must be sent again."""
        overtaken = [key for key, (partition, proposal) in self._open.items() if partition.isr_proposal is not proposal]
        for key in overtaken:
            del self._open[key]
        sent = dict(self._open)
        if not sent:
            self._failing_since_s = None
            return True
        request = build_request(self._node_id, self._broker_epoch(), [proposal for _, proposal in sent.values()])
        try:
            response = await self._call(request)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # no controller, a lost connection: the next attempt finds another one
            logger.info("ISR changes of %d partitions are not recorded yet: %s", len(sent), error)
            if self._failing_since_s is None:
                self._failing_since_s = asyncio.get_running_loop().time()
            return False
        self._failing_since_s = None
        if response.error_code:
            logger.info("the controller refused ISR changes with %s", ErrorCode(response.error_code).name)
            return False
        for topic in response.topics:
            for answer in topic.partitions:
                key = (topic.topic_id, answer.partition_index)
                if key in sent:
                    partition, proposal = sent[key]
                    self._settle(key, partition, proposal, answer)
        return not any(key in self._open for key in sent)

    def _settle(self, key: tuple[Any, int], partition: Partition, proposal: IsrProposal, answer: Any) -> None:
        again = False
        if answer.error_code:
            again = partition.isr_refused(proposal, answer.error_code)
        else:
            partition.isr_recorded(proposal, tuple(answer.isr), answer.leader_epoch, answer.partition_epoch)
        if not again and self._open.get(key) == (partition, proposal):
            del self._open[key]
