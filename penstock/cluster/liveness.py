"""Whom the controller hears: a broker may hold its session with the store and still be out of the controller's reach.

Every broker is asked for a sign of life at each heartbeat interval. Who is silent for the session time-out is fenced:
out of the ISRs, its leaderships moved, its registration untouched; it is admitted again when it has acknowledged the
current image. A controller that misses half or more of the others cannot know whether it is they or itself: it leaves
its place to another one, with a note whom it missed. Its successor fences the half that it misses as well. Where the
host says that nobody listens there is no doubt: the way is good and the process is gone.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from penstock.cluster.changes import Changes, Decision
from penstock.cluster.elections import elect_offline_partitions, leave_isr
from penstock.cluster.events import BrokersSilent
from penstock.cluster.image import BrokerRegistration


@dataclass(frozen=True, slots=True)
class LivenessTimes:
    heartbeat_s: float = 2.0
    timeout_s: float = 9.0


class Verdict(enum.Enum):
    NOTHING = "nothing"
    FENCE = "fence"
    STEP_ASIDE = "step aside"


class Liveness:
    """When each registration was heard last. Time is handed in (seconds of a monotonic clock)."""

    def __init__(self, timeout_s: float, now_s: float) -> None:
        self._timeout_s = timeout_s
        self._heard_s: dict[tuple[int, int], float] = {}
        self._refused: set[tuple[int, int]] = set()
        self._looked_s = now_s

    def heard(self, broker: BrokerRegistration, now_s: float) -> None:
        self._heard_s[(broker.broker_id, broker.epoch)] = now_s
        self._refused.discard((broker.broker_id, broker.epoch))

    def unheard(self, broker: BrokerRegistration, refused: bool) -> None:
        """It did not answer. `refused`: its host did, and said that nobody listens there."""
        if refused:
            self._refused.add((broker.broker_id, broker.epoch))
        else:
            self._refused.discard((broker.broker_id, broker.epoch))

    def silent(self, others: Mapping[int, BrokerRegistration], now_s: float) -> dict[int, int]:
        """Those who were not heard for too long, with their epochs. A new registration has the whole time-out before
        it; and so has everybody if it was us who stood still."""
        stood_still = now_s - self._looked_s > self._timeout_s / 2
        self._looked_s = now_s
        known = {(b.broker_id, b.epoch) for b in others.values()}
        self._refused &= known
        self._heard_s = {key: now_s if stood_still else self._heard_s.get(key, now_s) for key in sorted(known)}
        return {i: epoch for (i, epoch), at in self._heard_s.items() if now_s - at > self._timeout_s}

    def is_gone(self, broker_id: int, epoch: int) -> bool:
        return (broker_id, epoch) in self._refused


def judge(
    others: Mapping[int, BrokerRegistration],
    silent: Mapping[int, int],
    missed_before: frozenset[int],
    gone: Collection[int] = (),
) -> Verdict:
    """What a controller does about silent brokers. `missed_before` are those that its predecessor missed when it
    stepped aside: two who miss the same half are right about it. Those that are `gone` for sure raise no doubt."""
    if all(others[broker_id].fenced for broker_id in silent):
        return Verdict.NOTHING
    missed = silent.keys() - set(gone)
    if 2 * len(missed) < len(others) or not missed:
        return Verdict.FENCE
    if 2 * len(missed) == len(others) and missed_before >= missed:
        return Verdict.FENCE
    return Verdict.STEP_ASIDE


def fence_silent(changes: Changes, event: BrokersSilent) -> Decision:
    fenced: set[int] = set()
    for broker_id, epoch in sorted(event.brokers.items()):
        broker = changes.brokers.get(broker_id)
        if broker is not None and broker.epoch == epoch and not broker.fenced:
            changes.brokers[broker_id] = replace(broker, fenced=True)
            fenced.add(broker_id)
    for where, partition in list(changes.partitions()):
        if fenced & {partition.leader, *partition.isr}:
            leave_isr(changes, where, fenced)
    return changes.finish()


def admit(changes: Changes, broker: BrokerRegistration) -> None:
    """It has acknowledged the current image: it may lead and be in sync again."""
    changes.brokers[broker.broker_id] = replace(broker, fenced=False)
    elect_offline_partitions(changes)
