"""The controller's decision core: (state, event) → (next state, store writes, image delta, answer).

Pure and deterministic.
The state is immutable and nothing counts until the writes are in the store: a driver that cannot write keeps the old.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.cluster.events import DecisionOutput, Event
from penstock.cluster.image import MetadataImage


@dataclass(frozen=True, slots=True)
class ControllerPolicy:
    """The settings that decisions depend on."""

    unclean_leader_election: bool = False
    leader_imbalance_percent: int = 10
    delete_topic_enable: bool = True


@dataclass(frozen=True, slots=True)
class TopicDeletion:
    """A topic that left the image at `version` and waits for these brokers to say that they dropped their replicas."""

    version: int
    waiting_for: frozenset[int]


@dataclass(frozen=True, slots=True)
class ControllerState:
    image: MetadataImage
    policy: ControllerPolicy = ControllerPolicy()
    topic_versions: Mapping[str, int] = field(default_factory=dict)
    """Version of each `/brokers/topics/T` node."""
    deletions: Mapping[str, TopicDeletion] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decision:
    state: ControllerState
    output: DecisionOutput


def decide(state: ControllerState, event: Event) -> Decision:
    """What to write, what to tell the brokers and what to answer because of `event`."""
    raise NotImplementedError(type(event).__name__)
