"""Groups under random clients, time, failovers and log faults, against a small model: about 10,000 steps a run.

The model knows nothing of how a coordinator works. It is a set of clients that do as they are told, and a notebook of
what they were told:
- a partition has one owner in a generation (classic), one owner at a time among members (consumer groups);
- stored generations and group epochs only grow;
- a committed offset, once acknowledged, never goes back;
- nothing that was answered is lost by a failover.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.coordinator.group.classic_group import ClassicGroup, JoinResult, SyncResult
from penstock.coordinator.group.classic_members import SyncRequest
from penstock.coordinator.group.consumer_group import ConsumerGroup
from penstock.coordinator.group.consumer_protocol import decode_assignment, encode_assignment
from penstock.coordinator.group.records import Assignment
from penstock.protocol.errors import ErrorCode
from penstock.testing.group_world import World

CLIENTS = 4
PARTITIONS = 5
TOPIC_ID = UUID(int=1)
NONE = ErrorCode.NONE
# What a client answers by starting over; anything else that is not listed at its place is a bug.
START_OVER = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.MEMBER_ID_REQUIRED,
}


@dataclass
class ClassicClient:
    member_id: str = ""
    generation: int = -1
    joining: list[JoinResult] | None = None
    syncing: list[SyncResult] | None = None
    share: list[int] = field(default_factory=list)
    in_group: bool = False

    def reset(self, keep_id: bool = False) -> None:
        self.__init__(self.member_id if keep_id else "")  # type: ignore[misc]


@dataclass
class ConsumerClient:
    member_id: str
    epoch: int = 0
    owned: Assignment = field(default_factory=dict)
    lives: int = 0

    def reset(self) -> None:
        self.lives += 1
        self.member_id = f"{self.member_id.split('#')[0]}#{self.lives}"
        self.epoch = 0
        self.owned = {}


class Groups(RuleBasedStateMachine):
    """Classic group "c" and consumer group "m" in one shard."""

    @initialize()
    def start(self) -> None:
        # Nothing expires: a group that was forgotten begins anew, with its first generation.
        self.world = World(initial_rebalance_delay_ms=100, offsets_retention_check_interval_ms=10**9)
        self.world.topics.create("t", PARTITIONS)
        self.classic = [ClassicClient() for _ in range(CLIENTS)]
        self.consumers = [ConsumerClient(f"m{number}") for number in range(CLIENTS)]
        self.owners: dict[int, dict[int, str]] = {}
        self.stored_generation = 0
        self.group_epoch = 0
        self.next_offset = 0
        self.acknowledged: dict[tuple[str, int], int] = {}
        self.seen: dict[tuple[str, int], int] = {}

    # Classic clients -----------------------------------------------------------------------------------------

    @rule(who=st.integers(0, CLIENTS - 1))
    def classic_goes_on(self, who: int) -> None:
        client = self.classic[who]
        if client.joining is not None:
            if client.joining:
                self._joined(client, client.joining[0])
        elif client.syncing is not None:
            if client.syncing:
                self._synced(client, client.syncing[0])
        elif client.in_group:
            self._beat(client)
        else:
            client.joining = self.world.join(client.member_id, "c")

    def _joined(self, client: ClassicClient, answer: JoinResult) -> None:
        client.joining = None
        if answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = answer.member_id
            client.joining = self.world.join(client.member_id, "c")
            return
        if answer.error in START_OVER | {ErrorCode.REBALANCE_IN_PROGRESS}:
            client.reset(keep_id=answer.error is not ErrorCode.UNKNOWN_MEMBER_ID)
            return
        assert answer.error is NONE, answer
        client.member_id, client.generation = answer.member_id, answer.generation
        request = SyncRequest("c", client.member_id, client.generation)
        if answer.leader == client.member_id and answer.members:
            names = sorted(name for name, _, _ in answer.members)
            for number, name in enumerate(names):
                share = [partition for partition in range(PARTITIONS) if partition % len(names) == number]
                request.assignments[name] = encode_assignment({"t": share})
        client.syncing = self.world.sync_with(request)

    def _synced(self, client: ClassicClient, answer: SyncResult) -> None:
        client.syncing = None
        if answer.error is not NONE:
            assert answer.error in START_OVER | {ErrorCode.REBALANCE_IN_PROGRESS}, answer
            client.reset(keep_id=answer.error is not ErrorCode.UNKNOWN_MEMBER_ID)
            return
        client.in_group = True
        client.share = decode_assignment(answer.assignment).get("t", []) if answer.assignment else []
        self.stored_generation = max(self.stored_generation, client.generation)  # answers may be read late
        owners = self.owners.setdefault(client.generation, {})
        for partition in client.share:
            assert owners.setdefault(partition, client.member_id) == client.member_id, "two owners in a generation"

    def _beat(self, client: ClassicClient) -> None:
        error = self.world.heartbeat(client.member_id, client.generation, "c")
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            client.in_group = False
            client.joining = self.world.join(client.member_id, "c")
        elif error is not NONE:
            assert error in START_OVER, error
            client.reset()

    @rule(who=st.integers(0, CLIENTS - 1))
    def classic_leaves(self, who: int) -> None:
        client = self.classic[who]
        if client.in_group:
            if not self.world.log.commits:
                return
            assert self.world.leave(client.member_id, group_id="c")[0] in {NONE} | START_OVER
            client.reset()

    @rule(who=st.integers(0, CLIENTS - 1))
    def classic_crashes(self, who: int) -> None:
        self.classic[who].reset()

    # Consumer group clients ----------------------------------------------------------------------------------

    @rule(who=st.integers(0, CLIENTS - 1))
    def consumer_goes_on(self, who: int) -> None:
        client = self.consumers[who]
        if not self.world.log.commits:
            return  # its answer would be parked; the classic half tests parking
        fields: dict[str, Any] = {"owned": client.owned}
        if client.epoch == 0:
            fields |= {"rebalance_timeout_ms": 20_000, "topic_names": ["t"], "owned": {}}
        result = self.world.consumer_heartbeat(client.member_id, client.epoch, "m", **fields)
        if result.error is not NONE:
            assert result.error in START_OVER, result
            client.reset()
            return
        assert result.member_epoch >= client.epoch, "member epochs only grow"
        client.epoch = result.member_epoch
        if result.assignment is not None:
            client.owned = result.assignment

    @rule(who=st.integers(0, CLIENTS - 1))
    def consumer_leaves(self, who: int) -> None:
        client = self.consumers[who]
        if client.epoch > 0 and self.world.log.commits:
            assert self.world.consumer_heartbeat(client.member_id, -1, "m").error in {NONE} | START_OVER
            client.reset()

    @rule(who=st.integers(0, CLIENTS - 1))
    def consumer_crashes(self, who: int) -> None:
        self.consumers[who].reset()

    # Offsets -------------------------------------------------------------------------------------------------

    @rule(who=st.integers(0, CLIENTS - 1), partition=st.integers(0, PARTITIONS - 1))
    def classic_commits(self, who: int, partition: int) -> None:
        client = self.classic[who]
        if client.generation >= 0:
            self._commit("c", client.member_id, client.generation, partition)

    @rule(who=st.integers(0, CLIENTS - 1), partition=st.integers(0, PARTITIONS - 1))
    def consumer_commits(self, who: int, partition: int) -> None:
        client = self.consumers[who]
        if client.epoch > 0:
            self._commit("m", client.member_id, client.epoch, partition)

    def _commit(self, group: str, member_id: str, generation: int, partition: int) -> None:
        self.next_offset += 1
        codes = self.world.commit(member_id, generation, self.next_offset, group, "t", partition, version=9)
        if codes == [NONE]:
            self.acknowledged[group, partition] = self.next_offset
            if group == "c":
                assert generation >= self.stored_generation, "a member of the past has committed"

    @rule(who=st.integers(0, CLIENTS - 1))
    def past_and_future_generations_are_refused(self, who: int) -> None:
        client = self.classic[who]
        if client.in_group:
            for generation in (client.generation - 1, client.generation + 1):
                if generation != self.world.group("c").generation:
                    codes = self.world.commit(client.member_id, generation, 10**9, "c", "t", 0, version=9)
                    assert codes and codes[0] is not NONE

    @rule()
    def stranger_commits(self) -> None:
        self.next_offset += 1
        for group in ("c", "m"):
            codes = self.world.commit("stranger", 1, self.next_offset, group, "t", 0, version=9)
            assert codes and codes[0] is not NONE

    # The world -----------------------------------------------------------------------------------------------

    @rule(milliseconds=st.sampled_from([50, 200, 1_000, 4_000, 12_000, 50_000]))
    def time_passes(self, milliseconds: int) -> None:
        self.world.pass_time(milliseconds)

    @rule()
    def coordinator_fails(self) -> None:
        self.world.fail_over()
        group = self.world.shard.groups.get("c")
        stored = group.generation if isinstance(group, ClassicGroup) else 0
        assert stored >= self.stored_generation, "a generation that members were told of is lost"

    @rule()
    def followers_stop(self) -> None:
        self.world.log.commits = False

    @rule()
    def followers_catch_up(self) -> None:
        self.world.log.commit_all()
        self.world.settle()

    @rule(who=st.integers(0, CLIENTS - 1))
    def log_refuses_once(self, who: int) -> None:
        self.world.log.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
        try:
            self.classic_goes_on(who)
            self.classic_commits(who, 0)
        finally:
            self.world.log.refuses = NONE

    @rule(rounds=st.integers(1, 6))
    def everybody_goes_on(self, rounds: int) -> None:
        for _ in range(rounds):
            for who in range(CLIENTS):
                self.classic_goes_on(who)
                self.consumer_goes_on(who)
            self.world.pass_time(150)

    # What must hold ------------------------------------------------------------------------------------------

    @invariant()
    def committed_offsets_never_go_back(self) -> None:
        for key in [(group, partition) for group in ("c", "m") for partition in range(PARTITIONS)]:
            found: list[int] = []
            group, partition = key

            def read(shard: Any, group: str = group, partition: int = partition) -> int:
                committed = shard.offsets.get(group, "t", partition)
                return -1 if committed is None else int(committed.offset)

            self.world.runtime.read(0, read, lambda _error, value, found=found: found.append(value))
            if found:  # else parked: something is not committed yet
                assert found[0] >= self.acknowledged.get(key, -1), "an acknowledged commit is lost"
                assert found[0] >= self.seen.get(key, -1), "a committed offset went back"
                self.seen[key] = found[0]

    @invariant()
    def a_partition_has_one_owner_among_the_members(self) -> None:
        group = self.world.shard.groups.get("m")
        if not isinstance(group, ConsumerGroup):
            return
        owners: dict[int, str] = {}
        for client in self.consumers:
            member = group.members.get(client.member_id)
            if member is None or client.epoch == 0:
                continue
            for partition in client.owned.get(TOPIC_ID, set()):
                assert owners.setdefault(partition, client.member_id) == client.member_id, "two owners at a time"
        if self.world.log.commits:
            assert group.epoch >= self.group_epoch, "the group epoch went back"
            self.group_epoch = group.epoch


Groups.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestGroups = Groups.TestCase
