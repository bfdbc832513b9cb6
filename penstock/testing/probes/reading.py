"""Probes of Fetch, ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

from __future__ import annotations

import time
import uuid
from typing import Any

from penstock.protocol import messages
from penstock.testing.probes.harness import Session, probe
from penstock.testing.probes.records import batch, produce


def fetch(session: Session, topic: str, offset: int = 0, version: int = 12, partition: int = 0, **more: Any) -> Any:
    api = messages.api("fetch").load_all_versions()
    inner = {
        key: more.pop(key)
        for key in list(more)
        if key in ("current_leader_epoch", "partition_max_bytes", "last_fetched_epoch")
    }
    row = api.FetchPartition(partition=partition, fetch_offset=offset, **{"partition_max_bytes": 1 << 20, **inner})
    wanted = api.request_struct("FetchTopic")(partitions=[row])
    if version >= 13:
        wanted.topic_id = more.pop("topic_id", None) or session.topic_id(topic)
    else:
        wanted.topic = topic
    settings = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 22, "session_epoch": -1, **more}
    return session.call("fetch", version, api.Request(topics=[wanted], **settings))


def summary(answer: Any) -> Any:
    rows = [
        (
            p.error_code,
            p.high_watermark,
            p.last_stable_offset,
            p.log_start_offset,
            len(p.records or b""),
            p.aborted_transactions,
        )
        for topic in answer.responses
        for p in topic.partitions
    ]
    return answer.error_code, answer.session_id != 0, rows


def filled(session: Session, batches: int = 3) -> str:
    topic = session.topic()
    now = int(time.time() * 1000)
    for number in range(batches):
        produce(session, topic, bytes(batch(2, timestamp=now + number)))
    return topic


for _version in range(4, 19):

    @probe(f"fetch v{_version}")
    def _fetch(session: Session, version: int = _version) -> Any:
        return summary(fetch(session, filled(session), 0, version))


OFFSETS = {"inside a batch": 3, "at the end": 6, "beyond the end": 7, "far beyond": 10**12, "negative": -1}
for _label, _offset in OFFSETS.items():

    @probe(f"fetch: {_label}")
    def _offsets(session: Session, offset: int = _offset) -> Any:
        return summary(fetch(session, filled(session), offset))


FETCHES: dict[str, dict[str, Any]] = {
    "one byte still brings a batch": {"partition_max_bytes": 1, "max_bytes": 1},
    "zero bytes": {"partition_max_bytes": 0, "max_bytes": 0},
    "a limit inside the second batch": {"partition_max_bytes": 100},
    "the current leader epoch": {"current_leader_epoch": 0},
    "a leader epoch to come": {"current_leader_epoch": 5},
    "read committed": {"isolation_level": 1},
    "an unknown session": {"session_id": 4711, "session_epoch": 1},
    "a session that is to begin": {"session_epoch": 0},
}
for _label, _more in FETCHES.items():

    @probe(f"fetch: {_label}")
    def _settings(session: Session, more: dict[str, Any] = _more) -> Any:
        return summary(fetch(session, filled(session), 0, **more))


@probe("fetch: unknown topic")
def _unknown(session: Session) -> Any:
    return summary(fetch(session, "never-created"))


@probe("fetch: unknown partition")
def _partition(session: Session) -> Any:
    return summary(fetch(session, filled(session), partition=9))


@probe("fetch: unknown topic id")
def _unknown_id(session: Session) -> Any:
    return summary(fetch(session, "", version=13, topic_id=uuid.UUID(int=99)))


@probe("fetch: a session goes on, a wrong epoch, a forgotten topic")
def _session(session: Session) -> Any:
    topic = filled(session)
    api = messages.api("fetch").load_all_versions()
    first = fetch(session, topic, session_epoch=0)
    steps = [summary(first)]
    common = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "session_id": first.session_id}
    steps.append(summary(session.call("fetch", 12, api.Request(topics=[], session_epoch=1, **common))))
    steps.append(summary(session.call("fetch", 12, api.Request(topics=[], session_epoch=1, **common))))
    produce(session, topic, bytes(batch(1)))
    steps.append(summary(session.call("fetch", 12, api.Request(topics=[], session_epoch=2, **common))))
    forgotten = [api.ForgottenTopic(topic=topic, partitions=[0])]
    steps.append(
        summary(
            session.call(
                "fetch", 12, api.Request(topics=[], session_epoch=3, forgotten_topics_data=forgotten, **common)
            )
        )
    )
    return steps


@probe("fetch: long poll ends with nothing")
def _long_poll(session: Session) -> Any:
    topic = filled(session)
    began = time.monotonic()
    answer = summary(fetch(session, topic, 6, max_wait_ms=400))
    return answer, time.monotonic() - began > 0.3


TIMESTAMPS = {
    "latest": -1,
    "earliest": -2,
    "max timestamp": -3,
    "earliest local": -4,
    "latest tiered": -5,
    "pending upload": -6,
    "unknown special": -7,
    "zero": 0,
    "future": 2**62,
}


def list_offsets(session: Session, topic: str, timestamp: int, version: int, *partitions: int, **more: Any) -> Any:
    api = messages.api("list_offsets").load_all_versions()
    row = api.request_struct("ListOffsetsPartition")
    rows = [row(partition_index=p, timestamp=timestamp, **more) for p in partitions or (0,)]
    request = api.Request(replica_id=-1, topics=[api.request_struct("ListOffsetsTopic")(name=topic, partitions=rows)])
    answer = session.call("list_offsets", version, request)
    return [
        (p.error_code, p.offset, p.timestamp if p.timestamp < 0 else "time", p.leader_epoch)
        for p in answer.topics[0].partitions
    ]


for _label, _timestamp in TIMESTAMPS.items():
    for _version in (1, 7, 11):

        @probe(f"list offsets v{_version}: {_label}")
        def _list(session: Session, timestamp: int = _timestamp, version: int = _version) -> Any:
            return list_offsets(session, filled(session), timestamp, version)


@probe("list offsets: an empty topic")
def _list_empty(session: Session) -> Any:
    topic = session.topic()
    return [list_offsets(session, topic, timestamp, 8) for timestamp in (-1, -2, -3, 0)]


@probe("list offsets: one partition twice, one unknown")
def _list_twice(session: Session) -> Any:
    topic = filled(session)
    return list_offsets(session, topic, -1, 7, 0, 0), list_offsets(session, topic, -1, 7, 8)


@probe("list offsets: by time between batches")
def _list_time(session: Session) -> Any:
    topic = session.topic()
    base = int(time.time() * 1000) - 100_000
    for step in range(4):
        produce(session, topic, bytes(batch(2, timestamp=base + step * 1000)))
    return [list_offsets(session, topic, base + shift, 7) for shift in (-5, 0, 1, 1000, 2500, 3001)]


@probe("list offsets: a leader epoch to come")
def _list_epoch(session: Session) -> Any:
    return list_offsets(session, filled(session), -1, 7, current_leader_epoch=9)


for _version in (2, 3, 4):

    @probe(f"offset for leader epoch v{_version}")
    def _epochs(session: Session, version: int = _version) -> Any:
        topic = filled(session)
        api = messages.api("offset_for_leader_epoch").load_all_versions()
        answers = []
        for current, asked in ((-1, 0), (-1, 5), (-1, -1), (3, 0)):
            row = api.OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=asked)
            wanted = api.OffsetForLeaderTopic(topic=topic, partitions=[row])
            answer = session.call("offset_for_leader_epoch", version, api.Request(replica_id=-1, topics=[wanted]))
            result = answer.topics[0].partitions[0]
            answers.append((result.error_code, result.leader_epoch, result.end_offset))
        return answers


for _label, _offset in {"in the middle": 3, "all": -1, "beyond the end": 99, "negative": -2, "zero": 0}.items():

    @probe(f"delete records: {_label}")
    def _delete(session: Session, offset: int = _offset) -> Any:
        topic = filled(session)
        api = messages.api("delete_records")
        row = api.request_struct("DeleteRecordsPartition")(partition_index=0, offset=offset)
        wanted = api.request_struct("DeleteRecordsTopic")(name=topic, partitions=[row])
        answer = session.call("delete_records", 2, api.Request(topics=[wanted], timeout_ms=3000))
        result = answer.topics[0].partitions[0]
        return (
            result.error_code,
            result.low_watermark,
            summary(fetch(session, topic, 0)),
            summary(fetch(session, topic, 4)),
        )


@probe("delete records: a compacted topic")
def _delete_compacted(session: Session) -> Any:
    topic = session.topic(cleanup_policy="compact")
    produce(session, topic, bytes(batch(2)))
    api = messages.api("delete_records")
    row = api.request_struct("DeleteRecordsPartition")(partition_index=0, offset=1)
    wanted = api.request_struct("DeleteRecordsTopic")(name=topic, partitions=[row])
    answer = session.call("delete_records", 2, api.Request(topics=[wanted], timeout_ms=3000))
    return answer.topics[0].partitions[0].error_code


@probe("describe log dirs: one topic, an unknown one")
def _log_dirs(session: Session) -> Any:
    topic = filled(session)
    api = messages.api("describe_log_dirs")
    wanted = [
        api.DescribableLogDirTopic(topic=topic, partitions=[0]),
        api.DescribableLogDirTopic(topic="none", partitions=[0]),
    ]
    answer = session.call("describe_log_dirs", 4, api.Request(topics=wanted))
    found = [
        (t.name == topic, p.partition_index, p.partition_size, p.offset_lag, p.is_future_key)
        for result in answer.results
        for t in result.topics
        for p in t.partitions
    ]
    return [result.error_code for result in answer.results], found
