"""Sequences of classic groups of several members: generations, static members, wrong words, upgrades both ways.

A join waits for the others, so a step is a round: one comes, then everybody else does, and the answers are compared
when all are there. Who leads is Kafka's chance (it keeps members in a hash table) and not compared, only that one
does. After each step the members do what real ones do until the group is at rest: that is what is compared. What is
seen on the way (a group that somebody has just left) is part of the step itself.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from typing import Any

from penstock.coordinator.group.consumer_protocol import (
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode
from penstock.testing.lockstep.groups import GroupSide, count_partitions
from penstock.testing.lockstep.sides import PARTITIONS, TOPIC, Answer, Step

STATIC = frozenset({"s1", "s2"})
REBALANCE_MS = 3_000
REST_SECONDS = 30.0
COME_AGAIN = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION})


class ClassicSide(GroupSide):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.present: dict[str, tuple[str, int]] = {}  # name → member id, generation
        self.leader = ""
        self._changes = itertools.count()
        self._told_last: dict[str, bytes] = {}
        self._holds_first: dict[str, bool] = {}

    def _instance(self, name: str) -> str | None:
        return name if name in STATIC else None

    async def _join(self, name: str, member_id: str, changed: bool = True) -> Any:
        """With something new to tell, so that the group rebalances whoever it is; else with the same words again."""
        api = messages.api("join_group")
        if changed:
            news = b"%d" % next(self._changes)
            self._told_last[name] = encode_subscription(Subscription([TOPIC], user_data=news, version=1))
        over = await self.way_of(name)
        for _ in range(3):
            request = api.Request(
                group_id=self.name,
                member_id=member_id,
                group_instance_id=self._instance(name),
                protocol_type="consumer",
                session_timeout_ms=60_000,
                rebalance_timeout_ms=REBALANCE_MS,
                protocols=[api.JoinGroupRequestProtocol(name="range", metadata=self._told_last[name])],
            )
            answer = await self.ask("join_group", request, 9, lambda a: int(a.error_code), over)
            if answer.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                return answer
            member_id = answer.member_id
        return answer

    async def _sync(self, name: str, joined: Any, shares: dict[str, bytes]) -> Any:
        api = messages.api("sync_group")
        request = api.Request(
            group_id=self.name,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=self._instance(name),
            protocol_type="consumer",
            protocol_name=joined.protocol_name or "range",
            assignments=[
                api.SyncGroupRequestAssignment(member_id=member_id, assignment=share)
                for member_id, share in sorted(shares.items())
            ],
        )
        answer = await self.ask("sync_group", request, 5, lambda a: int(a.error_code), await self.way_of(name))
        if not answer.error_code:
            self.present[name] = (joined.member_id, joined.generation_id)
            share = decode_assignment(answer.assignment) if answer.assignment else {}
            self._holds_first[name] = 0 in share.get(TOPIC, [])
        return answer

    # -- steps

    async def round(self, joining: list[str], absent: list[str]) -> Answer:
        """The newcomers join one after the other; each time the present (but for the absent ones) come again, too."""
        told: list[Answer] = []
        for newcomer in [name for name in joining if name not in self.present] or [""]:
            if not await self._has_a_consumer():
                told.append(await self._next_generation(newcomer, absent))
            elif newcomer:
                answer = await self._join(newcomer, "")
                told.append(("beside a consumer", answer.error_code))
                if not answer.error_code:
                    await self._sync(newcomer, answer, {})
            await self.rest()
        return tuple(told)

    async def _next_generation(self, newcomer: str, absent: list[str]) -> Answer:
        present = sorted(set(self.present) - set(absent))
        coming = [*([newcomer] if newcomer else []), *present]
        if not coming:
            return ("nobody comes",)
        joins = [asyncio.ensure_future(self._join(coming[0], self.present.get(coming[0], ("", -1))[0]))]
        if len(coming) > 1:
            await self._until_it_rebalances(joins[0])
            joins += [asyncio.ensure_future(self._join(name, self.present[name][0])) for name in coming[1:]]
        answers = dict(zip(coming, await asyncio.gather(*joins), strict=True))
        for name in [
            *(name for name in absent if name not in STATIC),
            *(n for n, a in answers.items() if a.error_code),
        ]:
            self.present.pop(name, None)
        joined = {name: answer for name, answer in answers.items() if not answer.error_code}
        synced = await self._share_out(joined)
        newest = max((answer.generation_id for answer in joined.values()), default=-1)
        sizes = sorted(len(answer.members) for answer in joined.values())
        codes = [answer.error_code for answer in answers.values()]
        held = sorted(_size(sync.assignment) for sync in synced)
        return codes, self.epochs.of(newest), sizes, [sync.error_code for sync in synced], held

    async def _share_out(self, joined: dict[str, Any]) -> list[Any]:
        """Everybody syncs; whoever leads brings the shares."""
        shares: dict[str, dict[str, bytes]] = {}
        for name, answer in joined.items():
            if answer.leader == answer.member_id:
                self.leader = name
                ids = sorted(member.member_id for member in answer.members)
                shares[name] = {
                    member_id: encode_assignment({TOPIC: list(range(place, PARTITIONS, len(ids)))})
                    for place, member_id in enumerate(ids)
                }
        return await asyncio.gather(
            *(self._sync(name, answer, shares.get(name, {})) for name, answer in joined.items())
        )

    async def _until_it_rebalances(self, join: asyncio.Future[Any]) -> None:
        while not join.done() and (await self._described()).group_state not in ("PreparingRebalance", "Dead"):
            await asyncio.sleep(0.01)

    async def again(self) -> Answer:
        """Joins that bring nothing new: of one that follows, and of the one that leads."""
        if await self._has_a_consumer() or self.leader not in self.present:
            return ("nobody leads",)
        before = self.present[self.leader][1]
        told: list[Any] = []
        follower = next((name for name in sorted(self.present) if name != self.leader), None)
        if follower is not None and self.present[follower][1] == before:
            answer = await self._join(follower, self.present[follower][0], changed=False)
            told += [answer.error_code, answer.generation_id == before, answer.skip_assignment]
        leader = asyncio.ensure_future(self._join(self.leader, self.present[self.leader][0], changed=False))
        await self._until_it_rebalances(leader)
        others = [name for name in sorted(self.present) if name != self.leader]
        answers = await asyncio.gather(leader, *(self._join(name, self.present[name][0]) for name in others))
        synced = await self._share_out(dict(zip([self.leader, *others], answers, strict=True)))
        return *told, [a.error_code for a in answers], [s.error_code for s in synced], answers[0].generation_id - before

    async def beat(self, name: str, off_by: int) -> Answer:
        member_id, generation = self.present.get(name, ("nobody", 1))
        return (await self._beat_as(name, member_id, generation + off_by),)

    async def _beat_as(self, name: str, member_id: str, generation: int) -> int:
        request = messages.api("heartbeat").Request(
            group_id=self.name, generation_id=generation, member_id=member_id, group_instance_id=self._instance(name)
        )
        return int((await self.ask("heartbeat", request, 4, lambda a: int(a.error_code))).error_code)

    async def commit_classic(self, name: str, offset: int, off_by: int) -> Answer:
        """Beside consumers an older generation may commit what it has held since then, and who holds what is the
        assignor's affair: there only somebody speaks of an older one who does not hold the partition."""
        api = messages.api("offset_commit")
        if off_by < 0 and self._holds_first.get(name) and await self._has_a_consumer():
            name = next((other for other in sorted(self.present) if not self._holds_first.get(other)), "nobody")
        member_id, generation = self.present.get(name, ("nobody", 1))
        partition = api.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
        )
        request = api.Request(
            group_id=self.name,
            generation_id_or_member_epoch=generation + off_by,
            member_id=member_id,
            group_instance_id=self._instance(name),
            topics=[api.OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
        )

        def code(answer: Any) -> int:
            return int(answer.topics[0].partitions[0].error_code)

        return (code(await self.ask("offset_commit", request, 8, code)),)

    async def leave(self, name: str, by_instance: bool) -> Answer:
        api = messages.api("leave_group")
        member_id = self.present.get(name, ("nobody", 1))[0]
        who = api.MemberIdentity(
            member_id="" if by_instance and name in STATIC else member_id, group_instance_id=self._instance(name)
        )
        answer = await self.ask(
            "leave_group", api.Request(group_id=self.name, members=[who]), 5, lambda a: int(a.error_code)
        )
        codes = [member.error_code for member in answer.members]
        if codes == [0]:
            self.present.pop(name, None)
        return answer.error_code, codes, *await self._on_the_way()

    async def restart(self, name: str) -> Answer:
        """A static member comes back without its id. In a stable group nobody else has to move."""
        if name not in self.present or name not in STATIC:
            return ("not there",)
        await self.round([], [])
        before = self.present.get(name)
        if before is None:
            return ("lost its place",)
        answer = await self._join(name, "")
        fenced = await self._beat_as(name, *before)
        synced = await self._sync(name, answer, {})
        same = answer.generation_id == before[1]
        leads = answer.leader == answer.member_id
        knows_all = bool(answer.members) == answer.skip_assignment == leads
        return answer.error_code, answer.member_id != before[0], same, fenced, knows_all, synced.error_code

    async def upgrade(self, member: str) -> Answer:
        """A member of the consumer protocol comes, or goes on, in this group."""
        code, _, told = await self.heartbeat(member, None, None, False)
        return code, told

    async def downgrade(self, member: str) -> Answer:
        code, *_ = await self.heartbeat(member, -1, None, False)
        self.owned.pop(member, None)
        return code, *await self._on_the_way()

    # -- what is seen

    async def choices(self) -> None:
        """Compared at rest only: there is nothing to excuse."""

    async def rest(self) -> None:
        """Members beat, and come again when they are told to, until nobody has anything to do."""
        deadline = time.monotonic() + REST_SECONDS
        while time.monotonic() < deadline:
            if not await self._has_a_consumer():
                if (await self._described()).group_state in ("Stable", "Empty", "Dead") or not self.present:
                    return
                await self._next_generation("", [])
            elif await self._beat_all() and (await self._consumers()).group_state in ("Stable", "Empty"):
                return
            await asyncio.sleep(0.01)

    async def _beat_all(self) -> bool:
        """Whether nobody of a group with both kinds of members was told to do something."""
        calm = True
        if self.members.get("m1"):
            _, _, told = await self.heartbeat("m1", None, None, False)
            calm = not told
        for name, (member_id, generation) in sorted(self.present.items()):
            code = ErrorCode(await self._beat_as(name, member_id, generation))
            calm = calm and code is ErrorCode.NONE
            if code in COME_AGAIN:
                answer = await self._join(name, member_id, changed=False)
                if not answer.error_code:
                    await self._sync(name, answer, {})
                    continue
            if code is not ErrorCode.NONE:
                self.present.pop(name, None)
        return calm

    async def _described(self) -> Any:
        request = messages.api("describe_groups").Request(groups=[self.name])
        return (await self.ask("describe_groups", request, 5, lambda a: int(a.groups[0].error_code))).groups[0]

    async def _consumers(self) -> Any:
        request = messages.api("consumer_group_describe").Request(group_ids=[self.name])
        return (await self.ask("consumer_group_describe", request, 1, lambda a: int(a.groups[0].error_code))).groups[0]

    async def _has_a_consumer(self) -> bool:
        return bool((await self._consumers()).members)

    async def _on_the_way(self) -> Answer:
        """A group that has just lost somebody: what it shows, and what the first of the others is told."""
        described = await self._described()
        members = _members(described)
        first = min(self.present, default=None)
        return described.group_state, members, None if first is None else await self.beat(first, 0)

    async def state(self) -> Answer:
        await self.rest()
        described = await self._described()
        # Kafka names a group of the other protocol "Dead" here; which one it is, its own description says.
        members = _members(described)
        consumers = await self._consumers()
        kinds = sorted((member.member_type, member.instance_id or "") for member in consumers.members)
        held = sorted(count_partitions(member.assignment) for member in consumers.members)
        fetch = messages.api("offset_fetch")
        offsets = fetch.Request(groups=[fetch.OffsetFetchRequestGroup(group_id=self.name, topics=None)])
        fetched = (await self.ask("offset_fetch", offsets, 8, lambda a: int(a.groups[0].error_code))).groups[0]
        committed = [(p.partition_index, p.committed_offset) for t in fetched.topics for p in t.partitions]
        return described.error_code, described.group_state, members, consumers.error_code, kinds, held, committed


def _members(described: Any) -> tuple[list[str], list[int]]:
    """Who is there, and how much they hold: who gets one more depends on ids, which are random."""
    names = sorted(member.group_instance_id or "" for member in described.members)
    return names, sorted(_size(member.member_assignment) for member in described.members)


def _size(assignment: bytes) -> int:
    return sum(map(len, decode_assignment(assignment).values())) if assignment else -1


def classic_step(chance: random.Random) -> Step:
    names = ["c1", "c2", "c3", "s1", "s2"]
    name = chance.choice(names)
    kind = chance.choice(
        ["round"] * 5
        + ["absent", "again", "beat", "beat", "commit", "commit", "leave", "leave", "restart", "up", "up", "down"]
    )
    if kind == "round":
        joining = chance.sample(names, chance.randint(1, 2))
        return f"round with {joining}", lambda side: side.round(joining, [])
    if kind == "absent":
        return f"round without {name}", lambda side: side.round([], [name])
    if kind == "again":
        return "join again", lambda side: side.again()
    off_by = chance.choice([0, 0, 0, -1, 1])
    if kind == "beat":
        return f"beat {name} {off_by:+d}", lambda side: side.beat(name, off_by)
    if kind == "commit":
        offset = chance.randrange(100)
        return f"commit {name} {offset} {off_by:+d}", lambda side: side.commit_classic(name, offset, off_by)
    if kind == "leave":
        by_instance = chance.random() < 0.5
        return f"leave {name} by instance={by_instance}", lambda side: side.leave(name, by_instance)
    if kind == "restart":
        name = chance.choice(sorted(STATIC))
        return f"restart {name}", lambda side: side.restart(name)
    if kind == "up":
        return "consumer m1 beats", lambda side: side.upgrade("m1")
    return "consumer m1 leaves", lambda side: side.downgrade("m1")
