"""Groups and transactions beside Kafka: commits, transactions, a large group, heartbeats, loading a shard."""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
import urllib.request
from functools import partial
from pathlib import Path

from bench import load, targets
from bench.broker_scenarios import measured
from bench.load import create_topic
from bench.report import Row, absolute, alternate, at_least, at_most
from bench.stage import whole
from penstock.client.connection import Connection
from penstock.protocol import messages
from penstock.testing.ports import free_port

SECTION = "Groups and transactions"
OFFSET_COMMIT = 8
BUSY = (14, 15, 16, 27, 79)
QUICK_START = {"group.initial.rebalance.delay.ms": "0"}


def commit_frame(group: str, topic: str, partitions: range, version: int = 8) -> bytes:
    api = messages.api("offset_commit").load_all_versions()
    row = api.request_struct("OffsetCommitRequestPartition")
    rows = [row(partition_index=n, committed_offset=5, committed_metadata="") for n in partitions]
    wanted = api.request_struct("OffsetCommitRequestTopic")(name=topic, partitions=rows)
    request = api.Request(group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=[wanted])
    return load.frame(OFFSET_COMMIT, version, messages.encode_request(OFFSET_COMMIT, version, request))


def settle_commits(port: int, request: bytes, version: int = 8) -> int:
    """Find the coordinator (which makes its topic) and commit until it works; the size of the answer."""
    find = messages.api("find_coordinator").load_all_versions()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        load.call(port, "find_coordinator", 3, find.Request(key="bench", key_type=0))
        with load.connect(port) as connection:
            connection.sendall(request)
            answer = load.read_frame(connection)
        decoded = messages.decode_response(OFFSET_COMMIT, version, answer, 5)
        if not any(p.error_code for t in decoded.topics for p in t.partitions):
            return len(answer) + 4
        time.sleep(0.1)
    raise RuntimeError("offset commits are refused after 60 s")


def commit_rows(penstock: targets.Target, kafka: targets.Target, rounds: int, seconds: float) -> list[Row]:
    sides = {}
    for target in (penstock, kafka):
        create_topic(target.port, "committed")
        request = commit_frame("bench", "committed", range(1))
        size = settle_commits(target.port, request)
        work = partial(load.pipelined, target.port, request, size, 50, seconds)
        work()
        sides[target.name] = partial(measured, target, work)
    seen = alternate(rounds, sides)
    return [
        at_least(
            SECTION, "offset commits, 50 in flight", "commits/s", seen["penstock"]["rate"], seen["kafka"]["rate"], 2
        )
    ]


def transaction_rows(penstock: targets.Target, kafka: targets.Target, rounds: int, seconds: float) -> list[Row]:
    from confluent_kafka import Producer

    def transactions(target: targets.Target) -> dict[str, float]:
        topic = f"transactions-{time.time_ns()}"
        create_topic(target.port, topic)
        producer = Producer({"bootstrap.servers": target.bootstrap, "transactional.id": topic, "linger.ms": 0})
        producer.init_transactions(30)
        done = 0
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            producer.begin_transaction()
            for _ in range(10):
                producer.produce(topic, b"x" * 100)
            producer.commit_transaction(30)
            done += 1
        return {"rate": done / (time.perf_counter() - began)}

    for target in (penstock, kafka):
        transactions(target)
    seen = alternate(rounds, {t.name: lambda t=t: transactions(t) for t in (penstock, kafka)})  # type: ignore[misc]
    return [
        at_least(
            SECTION,
            "transactions of 10 records",
            "transactions/s",
            seen["penstock"]["rate"],
            seen["kafka"]["rate"],
            1.5,
        )
    ]


class Member:
    """A bare member of a classic group: joins, syncs, and beats when told."""

    def __init__(self, port: int, group: str) -> None:
        self._port, self._group = port, group
        self.member_id, self.generation = "", -1

    async def open(self) -> None:
        self._connection = await Connection.open("127.0.0.1", self._port, "bench")

    async def become_stable(self) -> None:
        join, sync = messages.api("join_group"), messages.api("sync_group")
        protocol = join.JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\1\0\5bench\xff\xff\xff\xff")
        while True:
            request = join.Request(
                group_id=self._group, session_timeout_ms=30_000, rebalance_timeout_ms=60_000, member_id=self.member_id,
                protocol_type="consumer", protocols=[protocol],
            )  # fmt: skip
            joined = await self._connection.request("join_group", request, version=5)
            self.member_id = joined.member_id or self.member_id
            if joined.error_code in BUSY:
                continue
            if joined.error_code:
                raise RuntimeError(f"join answered error {joined.error_code}")
            self.generation = joined.generation_id
            row = sync.SyncGroupRequestAssignment
            shares = [row(member_id=m.member_id, assignment=b"\0\0\0\0\0\0\xff\xff\xff\xff") for m in joined.members]
            wanted = sync.Request(
                group_id=self._group, generation_id=self.generation, member_id=self.member_id, assignments=shares
            )
            synced = await self._connection.request("sync_group", wanted, version=3)
            if synced.error_code == 0:
                return

    async def beat(self) -> int:
        request = messages.api("heartbeat").Request(
            group_id=self._group, generation_id=self.generation, member_id=self.member_id
        )
        return int((await self._connection.request("heartbeat", request, version=3)).error_code)

    def close(self) -> None:
        self._connection.close()


async def form_group(port: int, group: str, size: int) -> tuple[float, list[Member]]:
    """Seconds until every member sits in the last generation."""
    members = [Member(port, group) for _ in range(size)]
    for member in members:
        await member.open()
    began = time.perf_counter()
    await asyncio.gather(*(member.become_stable() for member in members))
    while True:
        codes = await asyncio.gather(*(member.beat() for member in members))
        late = [member for member, code in zip(members, codes, strict=True) if code]
        if not late:
            return time.perf_counter() - began, members
        await asyncio.gather(*(member.become_stable() for member in late))


def group_rows(penstock: targets.Target, kafka: targets.Target, rounds: int) -> list[Row]:
    def form(target: targets.Target) -> dict[str, float]:
        async def go() -> float:
            seconds, members = await form_group(target.port, f"large-{time.time_ns()}", 200)
            for member in members:
                member.close()
            return seconds

        return {"seconds": asyncio.run(go())}

    seen = alternate(rounds, {t.name: lambda t=t: form(t) for t in (penstock, kafka)})  # type: ignore[misc]
    name = "a group of 200 members, start to stable"
    return [at_most(SECTION, name, "s", seen["penstock"]["seconds"], seen["kafka"]["seconds"], 1)]


def heartbeat_rows(penstock: targets.Target) -> list[Row]:
    """2,000 members (in 20 groups) that beat every 3 s: the share of a core that they cost."""

    async def beat_for(seconds: float) -> float:
        members: list[Member] = []
        for number in range(20):
            members += (await form_group(penstock.port, f"beating-{number}", 100))[1]
        for _ in range(20):  # settle
            await asyncio.gather(*(member.beat() for member in members[:100]))
        before, began = penstock.cpu_seconds(), time.perf_counter()
        while (elapsed := time.perf_counter() - began) < seconds:
            number = int(elapsed / 3 * len(members))
            await asyncio.gather(*(members[(number + n) % len(members)].beat() for n in range(20)))
            due = (number + 20) / len(members) * 3
            await asyncio.sleep(max(0, due - (time.perf_counter() - began)))
        share = (penstock.cpu_seconds() - before) / (time.perf_counter() - began)
        for member in members:
            member.close()
        return share * 100

    return [absolute(SECTION, "heartbeats of 2,000 members", "% of a core", asyncio.run(beat_for(12)), 10)]


def loading_rows() -> list[Row]:
    """A restart with a million offset records in one shard: how long until the group answers, and the longest stall."""
    metrics = free_port()
    settings = {
        "penstock.metrics.listener": f"http://127.0.0.1:{metrics}",
        "offsets.topic.num.partitions": "1",
        **QUICK_START,
    }
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        folder = Path(name)
        with targets.penstock_broker(settings, folder) as target:
            create_topic(target.port, "offsets", partitions=1000)
            request = commit_frame("bench", "offsets", range(1000))
            size = settle_commits(target.port, request)
            connection = load.connect(target.port)
            for _ in range(100):
                connection.sendall(request * 10)
                for _ in range(10):
                    assert len(load.read_frame(connection)) + 4 == size
            connection.close()
        with targets.penstock_broker(settings, folder) as target:
            began = time.perf_counter()
            settle_commits(target.port, commit_frame("bench", "offsets", range(1)))
            seconds = time.perf_counter() - began
            text = urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics", timeout=10).read().decode()
    stall = re.search(r"^penstock_event_loop_lag_max_seconds (\S+)", text, re.MULTILINE)
    rows = [absolute(SECTION, "loading a shard of 1 million offset records", "s", seconds, 5)]
    if stall:
        rows.append(absolute(SECTION, "longest event-loop stall meanwhile", "ms", float(stall.group(1)) * 1e3, 50))
    return rows


def run(rounds: int, seconds: float) -> list[Row]:
    rows: list[Row] = []
    with targets.penstock_broker(QUICK_START) as penstock, targets.kafka_broker() as kafka:
        rows += commit_rows(penstock, kafka, rounds, seconds)
        rows += transaction_rows(penstock, kafka, min(rounds, 3), seconds)
        rows += group_rows(penstock, kafka, min(rounds, 3))
        rows += heartbeat_rows(penstock)
    return rows + loading_rows()


STAGES = whole(run)
