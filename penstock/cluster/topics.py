"""Creating, growing and deleting topics, as any broker may: check, write the topic's nodes, wait for the controller's
image.

The controller reacts to the nodes; nobody asks it. Answers carry Kafka's error codes.
"""

from __future__ import annotations

import contextlib
import logging
import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.base.settings import Settings, topic_problems
from penstock.cluster import znodes
from penstock.cluster.events import ReplicaAssignment
from penstock.cluster.image import NO_LEADER, MetadataImage
from penstock.cluster.image_holder import ImageHolder
from penstock.cluster.loading import read_topic
from penstock.cluster.placement import PlacementError, machines_of, place_replicas
from penstock.cluster.reassignment import check_manual_replicas
from penstock.cluster.topic_names import collision, name_problem
from penstock.protocol.errors import ErrorCode
from penstock.store.interface import (
    BadVersion,
    ConnectionLost,
    Create,
    MultiFailed,
    NodeExists,
    NoNode,
    Operation,
    SessionExpired,
    SetData,
    TreeStore,
)
from penstock.store.subscriptions import wait_until_deleted

logger = logging.getLogger(__name__)

USE_DEFAULT = -1
NO_TOPIC_ID = uuid.UUID(int=0)
MAX_PARTITIONS_PER_REQUEST = 10_000
MAX_RACES = 10


@dataclass(frozen=True, slots=True)
class NewTopic:
    name: str
    partition_count: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicAnswer:
    """The outcome for one topic; the later fields are set where the topic exists (or would, when only validating)."""

    name: str
    error_code: int = ErrorCode.NONE
    message: str | None = None
    topic_id: uuid.UUID = NO_TOPIC_ID
    partition_count: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MorePartitions:
    name: str
    total_count: int
    assignments: Sequence[tuple[int, ...]] | None = None
    """Replicas of each partition that is added, or None to place them."""


class Refusal(Exception):
    """Why a topic cannot be as asked."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class TopicAdmin:
    def __init__(
        self, store: TreeStore, images: ImageHolder, settings: Settings, rng: random.Random | None = None
    ) -> None:
        self._store = store
        self._images = images
        self._settings = settings
        self._rng = rng or random.Random()

    # --- creation ---

    async def create(
        self, topics: Sequence[NewTopic], timeout_ms: int, *, validate_only: bool = False
    ) -> list[TopicAnswer]:
        """One answer per topic, in order. Waits until they are led here, at most `timeout_ms`."""
        answers: list[TopicAnswer] = []
        creating: dict[str, uuid.UUID] = {}
        if sum(self._asked_partitions(topic) for topic in topics) > MAX_PARTITIONS_PER_REQUEST:
            text = "Excessively large number of partitions per request."  # of all its topics together, as with Kafka
            return [TopicAnswer(topic.name, ErrorCode.POLICY_VIOLATION, text) for topic in topics]
        for topic in topics:
            try:
                answer = await self._create_one(topic, validate_only, creating)
            except Refusal as refusal:
                answer = TopicAnswer(topic.name, refusal.code, refusal.message)
            except (ConnectionLost, SessionExpired) as lost:
                answer = TopicAnswer(topic.name, ErrorCode.KAFKA_STORAGE_ERROR, f"The topic cannot be stored: {lost}")
            answers.append(answer)
        if creating and not await self._wait(lambda image: _are_led(image, creating), timeout_ms):
            answers = [self._late(answer) if answer.name in creating else answer for answer in answers]
        return answers

    def _asked_partitions(self, topic: NewTopic) -> int:
        if topic.assignments:
            return len(topic.assignments)
        count = self._settings["num.partitions"] if topic.partition_count == USE_DEFAULT else topic.partition_count
        return max(count, 0)

    def _late(self, answer: TopicAnswer) -> TopicAnswer:
        image = self._images.image
        if _are_led(image, {answer.name: answer.topic_id}):
            return answer
        return TopicAnswer(answer.name, ErrorCode.REQUEST_TIMED_OUT, "The topic is created, but has no leaders yet.")

    async def _create_one(self, topic: NewTopic, validate_only: bool, creating: dict[str, uuid.UUID]) -> TopicAnswer:
        image = self._images.image
        problem = name_problem(topic.name)
        if problem is not None:
            raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if topic.name in image.topics or topic.name in creating:
            raise Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
        twin = collision(topic.name, [*image.topics, *creating])
        if twin is not None:
            raise Refusal(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{topic.name}' collides with existing topic: {twin}"
            )
        if topic.name == "__cluster_metadata":
            raise Refusal(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {topic.name} is prohibited.")
        configs = _checked_configs(topic.configs)
        replicas = self._place(topic, image)
        topic_id = uuid.uuid4()
        first = next(iter(replicas.values()))
        answer = TopicAnswer(
            topic.name, topic_id=topic_id, partition_count=len(replicas), replication_factor=len(first), configs=configs
        )
        if validate_only:
            return answer
        await self._write_topic(topic.name, topic_id, replicas, configs)
        creating[topic.name] = topic_id
        return answer

    def _place(self, topic: NewTopic, image: MetadataImage) -> dict[int, tuple[int, ...]]:
        if topic.assignments:
            if topic.partition_count != USE_DEFAULT or topic.replication_factor != USE_DEFAULT:
                field_name = "num_partitions" if topic.partition_count != USE_DEFAULT else "replication_factor"
                raise Refusal(ErrorCode.INVALID_REQUEST, f"A manual assignment was given, so {field_name} must be -1.")
            return _checked_assignments(topic.assignments, image)
        count, factor = topic.partition_count, topic.replication_factor
        if factor == 0 or factor < USE_DEFAULT:
            raise Refusal(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"The replication factor must be above 0, or -1 for the default, not {factor}.",
            )
        if count == 0 or count < USE_DEFAULT:
            raise Refusal(
                ErrorCode.INVALID_PARTITIONS,
                f"The number of partitions must be above 0, or -1 for the default, not {count}.",
            )
        count = self._settings["num.partitions"] if count == USE_DEFAULT else count
        factor = self._settings["default.replication.factor"] if factor == USE_DEFAULT else factor
        machines = machines_of(image.brokers, {broker_id: b.machine for broker_id, b in image.brokers.items()})
        if factor > len(set(machines.values())) and len(image.brokers) >= factor:
            logger.warning(
                "topic=%s replication factor %d on %d machine(s): some of its copies stand on the same one",
                topic.name,
                factor,
                len(set(machines.values())),
            )
        return self._place_by_count(image, count, factor)

    def _place_by_count(
        self, image: MetadataImage, count: int, factor: int, first_partition: int = 0
    ) -> dict[int, tuple[int, ...]]:
        there = {broker_id: b for broker_id, b in image.brokers.items() if not b.shutting_down}
        racks = {broker_id: b.rack for broker_id, b in there.items()}
        machines = {broker_id: b.machine for broker_id, b in there.items()}
        try:
            return place_replicas(racks, count, factor, self._rng, first_partition, machines)
        except PlacementError as error:
            raise Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, str(error)) from error

    async def _write_topic(
        self, name: str, topic_id: uuid.UUID, replicas: Mapping[int, tuple[int, ...]], configs: Mapping[str, str]
    ) -> None:
        config_path = znodes.config_path(("topic", name))
        data = znodes.encode_config(configs)
        assignments = {index: ReplicaAssignment(r) for index, r in replicas.items()}
        create = Create(znodes.topic_path(name), znodes.encode_topic(topic_id, assignments))
        for _ in range(MAX_RACES):
            # The mark is the last thing that a deletion removes: before that it might still take our config away.
            if await self._store.exists(znodes.deletion_path(name)) is not None:
                raise Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' is marked for deletion.")
            stale = await self._store.exists(config_path)
            config: Operation = Create(config_path, data) if stale is None else SetData(config_path, data)
            try:
                await self._store.multi([config, create])
                return
            except MultiFailed as failed:
                if failed.index == 1 and isinstance(failed.error, NodeExists):
                    raise Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.") from failed
                if not isinstance(failed.error, NodeExists | NoNode):
                    raise
        raise Refusal(ErrorCode.REQUEST_TIMED_OUT, "Somebody else creates and deletes this topic; try again.")

    # --- growth ---

    async def add_partitions(
        self, wishes: Sequence[MorePartitions], timeout_ms: int, *, validate_only: bool = False
    ) -> list[TopicAnswer]:
        answers: list[TopicAnswer] = []
        growing: dict[str, int] = {}
        for wish in wishes:
            try:
                await self._grow_one(wish, validate_only)
                answers.append(TopicAnswer(wish.name))
                if not validate_only:
                    growing[wish.name] = wish.total_count
            except Refusal as refusal:
                answers.append(TopicAnswer(wish.name, refusal.code, refusal.message))
        if growing and not await self._wait(lambda image: _have_grown(image, growing), timeout_ms):
            late = TopicAnswer("", ErrorCode.REQUEST_TIMED_OUT)
            image = self._images.image
            answers = [
                TopicAnswer(a.name, late.error_code)
                if a.name in growing and not _have_grown(image, {a.name: growing[a.name]})
                else a
                for a in answers
            ]
        return answers

    async def _grow_one(self, wish: MorePartitions, validate_only: bool) -> None:
        image = self._images.image
        if wish.name not in image.topics:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        for _ in range(MAX_RACES):
            try:
                record = await read_topic(self._store, wish.name)
            except znodes.MalformedNode as error:
                raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
            if record is None:
                raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            added = self._place_growth(wish, len(record.assignments), record.assignments[0], image)
            if validate_only:
                return
            assignments = {**record.assignments, **{i: ReplicaAssignment(r) for i, r in added.items()}}
            data = znodes.encode_topic(record.topic_id, assignments)
            try:
                await self._store.set(znodes.topic_path(wish.name), data, record.version)
                return
            except BadVersion:
                continue
            except NoNode:
                raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) from None
        raise Refusal(ErrorCode.REQUEST_TIMED_OUT, "The topic keeps changing; try again.")

    def _place_growth(
        self, wish: MorePartitions, current: int, pattern: ReplicaAssignment, image: MetadataImage
    ) -> dict[int, tuple[int, ...]]:
        missing = wish.total_count - current
        if missing == 0:
            raise Refusal(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partition(s).")
        if missing < 0:
            raise Refusal(
                ErrorCode.INVALID_PARTITIONS,
                f"The topic {wish.name} has {current} partition(s); {wish.total_count} would not be an increase.",
            )
        if missing > MAX_PARTITIONS_PER_REQUEST:
            raise Refusal(
                ErrorCode.INVALID_PARTITIONS,
                f"{missing} partitions are more than {MAX_PARTITIONS_PER_REQUEST}, the most that one request may add.",
            )
        factor = len([r for r in pattern.replicas if r not in pattern.adding])
        if wish.assignments is None:
            return self._place_by_count(image, missing, factor, current)
        if len(wish.assignments) != missing:
            raise Refusal(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{missing} partition(s) are to be added, but {len(wish.assignments)} assignment(s) are given.",
            )
        given = {current + step: replicas for step, replicas in enumerate(wish.assignments)}
        for replicas in given.values():
            if len(replicas) != factor:
                raise Refusal(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"The partitions of {wish.name} have {factor} replica(s), an assignment has {len(replicas)}.",
                )
        _check_replica_lists(given, image)
        return given

    # --- deletion ---

    async def delete(self, names: Sequence[str], timeout_ms: int) -> list[TopicAnswer]:
        """Marks topics for deletion and waits until they are gone (replicas on dead brokers are not waited for)."""
        answers: list[TopicAnswer] = []
        going: dict[uuid.UUID, frozenset[int]] = {}
        for name in names:
            topic = self._images.image.topics.get(name)
            if topic is None:
                answers.append(TopicAnswer(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
                continue
            if not self._settings["delete.topic.enable"]:
                answers.append(TopicAnswer(name, ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled."))
                continue
            with contextlib.suppress(NodeExists):  # asked before; the answer is the same
                await self._store.create(znodes.deletion_path(name))
            going[topic.topic_id] = frozenset(r for p in topic.partitions.values() for r in p.replicas)
            answers.append(TopicAnswer(name, topic_id=topic.topic_id))
        if going:
            if not await self._wait(lambda image: not going.keys() & image.topic_names.keys(), timeout_ms):
                return [
                    TopicAnswer(a.name, ErrorCode.REQUEST_TIMED_OUT, topic_id=a.topic_id) if a.topic_id in going else a
                    for a in answers
                ]
            await self._wait_for_holders(going, timeout_ms)
        return answers

    async def _wait_for_holders(self, going: Mapping[uuid.UUID, frozenset[int]], timeout_ms: int) -> None:
        """Where all holders live, wait until all of them have dropped their replicas."""
        for topic_id, holders in going.items():
            if holders <= self._images.image.brokers.keys():
                await wait_until_deleted(self._store, znodes.tombstone_path(topic_id), timeout_ms / 1000)

    async def _wait(self, condition: Callable[[MetadataImage], bool], timeout_ms: int) -> bool:
        return await self._images.wait_until(condition, max(0, timeout_ms) / 1000)


def _checked_configs(configs: Mapping[str, str | None]) -> dict[str, str]:
    problems = topic_problems(configs)
    if problems:
        raise Refusal(ErrorCode.INVALID_CONFIG, problems[0].message)
    return {name: value for name, value in configs.items() if value is not None}


def _checked_assignments(given: Mapping[int, tuple[int, ...]], image: MetadataImage) -> dict[int, tuple[int, ...]]:
    if sorted(given) != list(range(len(given))):
        raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Partitions must be numbered from 0 on, each of them once.")
    ordered = {index: tuple(given[index]) for index in sorted(given)}
    if len({len(replicas) for replicas in ordered.values()}) > 1:
        raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "All partitions must have the same number of replicas.")
    _check_replica_lists(ordered, image)
    return ordered


def _check_replica_lists(given: Mapping[int, tuple[int, ...]], image: MetadataImage) -> None:
    for replicas in given.values():
        problem = check_manual_replicas(image.brokers.keys(), replicas)
        if problem is not None:
            raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def _are_led(image: MetadataImage, topics: Mapping[str, uuid.UUID]) -> bool:
    for name, topic_id in topics.items():
        topic = image.topics.get(name)
        if topic is None or topic.topic_id != topic_id:
            return False
        if any(p.leader == NO_LEADER for p in topic.partitions.values()):
            return False
    return True


def _have_grown(image: MetadataImage, counts: Mapping[str, int]) -> bool:
    return all(name in image.topics and len(image.topics[name].partitions) >= n for name, n in counts.items())
