"""Probes of topic administration and metadata."""

from __future__ import annotations

import itertools
import uuid
from typing import Any

from penstock.protocol import messages
from penstock.testing.probes.harness import Session, probe


def creatable(name: str, partitions: int = 1, replication: int = 1, **more: Any) -> Any:
    api = messages.api("create_topics")
    return api.request_struct("CreatableTopic")(
        name=name, num_partitions=partitions, replication_factor=replication, **more
    )


def create(session: Session, version: int, *topics: Any, validate_only: bool = False) -> Any:
    api = messages.api("create_topics")
    request = api.Request(topics=list(topics), timeout_ms=5000, validate_only=validate_only)
    answer = session.call("create_topics", version, request)
    return [
        (t.error_code, t.num_partitions if version >= 5 and not t.error_code else None, t.topic_config_error_code)
        for t in sorted(answer.topics, key=lambda t: t.name)
    ]


def fresh(session: Session, suffix: str = "") -> str:
    return f"fresh-{uuid.uuid4().hex[:10]}{suffix}"


for _version in range(2, 8):

    @probe(f"create topics v{_version}")
    def _create(session: Session, version: int = _version) -> Any:
        name = fresh(session)
        return [create(session, version, creatable(name, 3)), create(session, version, creatable(name, 3))]


@probe("create topics: defaults of the broker")
def _defaults(session: Session) -> Any:
    return create(session, 7, creatable(fresh(session), -1, -1))


@probe("create topics: validate only")
def _validate_only(session: Session) -> Any:
    name = fresh(session)
    first = create(session, 7, creatable(name), validate_only=True)
    metadata = messages.api("metadata")
    request = metadata.Request(topics=[metadata.MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    return first, [t.error_code for t in session.call("metadata", 12, request).topics]


BAD_TOPICS = {
    "no partitions": {"partitions": 0},
    "negative partitions": {"partitions": -5},
    "replication zero": {"replication": 0},
    "replication below minus one": {"replication": -3},
    "replication above brokers": {"replication": 3},
}
for _label, _arguments in BAD_TOPICS.items():

    @probe(f"create topics: {_label}")
    def _bad(session: Session, arguments: dict[str, int] = _arguments) -> Any:
        return create(session, 7, creatable(fresh(session), **arguments))


for _name in ("", ".", "..", "with space", "slash/in", "a" * 250, "a" * 249, "ümlaut", "plus+", "__cluster_metadata"):

    @probe(f"create topics: the name {_name[:12]!r} of {len(_name)}")
    def _named(session: Session, name: str = _name) -> Any:
        return [code for code, _, _ in create(session, 7, creatable(name), validate_only=True)]


@probe("create topics: dot and underscore collide")
def _collide(session: Session) -> Any:
    stem = fresh(session)
    return [
        create(session, 7, creatable(f"{stem}.a_b")),
        create(session, 7, creatable(f"{stem}_a.b")),
    ]


@probe("create topics: one name twice in a request")
def _twice(session: Session) -> Any:
    name, other = fresh(session), fresh(session)
    return sorted(code for code, _, _ in create(session, 7, creatable(name), creatable(name), creatable(other)))


BAD_CONFIGS = {
    "unknown key": ("no.such.config", "1"),
    "not a number": ("retention.ms", "soon"),
    "below the range": ("segment.bytes", "1"),
    "not in the list": ("cleanup.policy", "shred"),
    "ratio above one": ("min.cleanable.dirty.ratio", "1.5"),
    "null value": ("retention.ms", None),
    "bad codec": ("compression.type", "brotli"),
    "bad timestamp type": ("message.timestamp.type", "Sometime"),
}
for _label, (_key, _value) in BAD_CONFIGS.items():

    @probe(f"create topics: config {_label}")
    def _config(session: Session, key: str = _key, value: str | None = _value) -> Any:
        config = messages.api("create_topics").request_struct("CreatableTopicConfig")
        return create(session, 7, creatable(fresh(session), configs=[config(name=key, value=value)]))


ASSIGNMENTS: dict[str, list[tuple[int, list[int]]]] = {
    "unknown broker": [(0, [99])],
    "the same broker twice": [(0, [1, 1])],
    "a gap in the partitions": [(1, [1])],
    "an empty list": [(0, [])],
}
for _label, _assignment in ASSIGNMENTS.items():

    @probe(f"create topics: assignment with {_label}")
    def _assigned(session: Session, assignment: list[tuple[int, list[int]]] = _assignment) -> Any:
        row = messages.api("create_topics").request_struct("CreatableReplicaAssignment")
        rows = [row(partition_index=index, broker_ids=brokers) for index, brokers in assignment]
        return create(session, 7, creatable(fresh(session), -1, -1, assignments=rows))


@probe("create topics: assignment together with a count")
def _both(session: Session) -> Any:
    row = messages.api("create_topics").request_struct("CreatableReplicaAssignment")
    return create(session, 7, creatable(fresh(session), 1, 1, assignments=[row(partition_index=0, broker_ids=[1])]))


for _version in range(1, 7):

    @probe(f"delete topics v{_version}")
    def _delete(session: Session, version: int = _version) -> Any:
        name = session.topic()
        api = messages.api("delete_topics").load_all_versions()
        missing = fresh(session)
        if version >= 6:
            state = api.request_struct("DeleteTopicState")
            request = api.Request(topics=[state(name=name), state(name=missing)], timeout_ms=5000)
        else:
            request = api.Request(topic_names=[name, missing], timeout_ms=5000)
        answer = session.call("delete_topics", version, request)
        return {("first" if r.name == name else "missing"): r.error_code for r in answer.responses}


@probe("delete topics: by an unknown id")
def _delete_by_id(session: Session) -> Any:
    api = messages.api("delete_topics")
    state = api.request_struct("DeleteTopicState")(name=None, topic_id=uuid.UUID(int=42))
    return [
        r.error_code for r in session.call("delete_topics", 6, api.Request(topics=[state], timeout_ms=5000)).responses
    ]


@probe("delete topics: by id")
def _delete_id(session: Session) -> Any:
    name = session.topic()
    api = messages.api("delete_topics")
    state = api.request_struct("DeleteTopicState")(name=None, topic_id=session.topic_id(name))
    answer = session.call("delete_topics", 6, api.Request(topics=[state], timeout_ms=5000))
    return [(r.error_code, r.name == name) for r in answer.responses]


for _label, _count in {"grow": 4, "the same": 2, "shrink": 1, "zero": 0, "negative": -1}.items():

    @probe(f"create partitions: {_label}")
    def _partitions(session: Session, count: int = _count) -> Any:
        name = session.topic(2)
        api = messages.api("create_partitions")
        wanted = api.CreatePartitionsTopic(name=name, count=count, assignments=None)
        answer = session.call("create_partitions", 3, api.Request(topics=[wanted], timeout_ms=5000))
        return [r.error_code for r in answer.results]


@probe("create partitions: unknown topic")
def _partitions_unknown(session: Session) -> Any:
    api = messages.api("create_partitions")
    wanted = api.CreatePartitionsTopic(name=fresh(session), count=3, assignments=None)
    answer = session.call("create_partitions", 3, api.Request(topics=[wanted], timeout_ms=5000))
    return [r.error_code for r in answer.results]


for _version in range(14):

    @probe(f"metadata v{_version}: a known and an unknown topic")
    def _metadata(session: Session, version: int = _version) -> Any:
        name = session.topic(2)
        api = messages.api("metadata")
        row = api.request_struct("MetadataRequestTopic")
        names = [name, fresh(session)] if version >= 4 else [name]
        request = api.Request(topics=[row(name=n) for n in names], allow_auto_topic_creation=False)
        answer = session.call("metadata", version, request)
        topics = sorted(answer.topics, key=lambda t: t.name != name)
        return [
            (
                t.error_code,
                t.is_internal,
                sorted((p.error_code, p.partition_index, p.leader_epoch) for p in t.partitions),
            )
            for t in topics
        ]


for _name in ("..", "with space", "a" * 250, ""):

    @probe(f"metadata: the invalid name {_name[:10]!r} of {len(_name)}")
    def _metadata_invalid(session: Session, name: str = _name) -> Any:
        api = messages.api("metadata")
        request = api.Request(topics=[api.request_struct("MetadataRequestTopic")(name=name)])
        return [t.error_code for t in session.call("metadata", 12, request).topics]


@probe("metadata: no topics at all")
def _metadata_none(session: Session) -> Any:
    return len(session.call("metadata", 12, messages.api("metadata").Request(topics=[])).topics)


@probe("metadata: by an unknown id")
def _metadata_id(session: Session) -> Any:
    api = messages.api("metadata")
    row = api.request_struct("MetadataRequestTopic")(name=None, topic_id=uuid.UUID(int=4711))
    return [(t.error_code, t.name) for t in session.call("metadata", 12, api.Request(topics=[row])).topics]


@probe("metadata: an unknown topic is created when allowed")
def _metadata_create(session: Session) -> Any:
    api = messages.api("metadata")
    name = fresh(session)
    request = api.Request(
        topics=[api.request_struct("MetadataRequestTopic")(name=name)], allow_auto_topic_creation=True
    )
    first = [t.error_code for t in session.call("metadata", 12, request).topics]
    session.wait_for_leaders(name, 1)
    return first


@probe("describe topic partitions: known, unknown, limited")
def _describe(session: Session) -> Any:
    name = session.topic(3)
    api = messages.api("describe_topic_partitions")
    rows = [api.TopicRequest(name=name), api.TopicRequest(name="zz-" + fresh(session))]
    answer = session.call("describe_topic_partitions", 0, api.Request(topics=rows, response_partition_limit=2))
    cursor = answer.next_cursor
    found = [(t.error_code, [p.partition_index for p in t.partitions]) for t in answer.topics]
    return found, cursor and (cursor.topic_name == name, cursor.partition_index)


for _version in range(3):

    @probe(f"describe cluster v{_version}")
    def _cluster(session: Session, version: int = _version) -> Any:
        answer = session.call("describe_cluster", version, messages.api("describe_cluster").Request())
        return answer.error_code, len(answer.brokers), bool(answer.cluster_id)


# Topics of one request: (a name or None, an id or None); "known" and "other" stand for topics that are there.
NAMES_AND_IDS: dict[str, list[tuple[str | None, str | None]]] = {
    "a topic of which nothing is said": [(None, None)],
    "one of which nothing is said beside a name": [("known", None), (None, None)],
    "one of which nothing is said beside an id": [(None, None), (None, "known")],
    "a name beside an id": [("other", None), (None, "known")],
    "a name beside an unknown id": [("known", None), (None, "unknown")],
    "a name and the id of another": [("other", "known")],
    "a topic by name and by id": [("known", None), (None, "known")],
    "a topic twice": [("known", None), ("known", None)],
}
for _version, (_label, _topics) in itertools.product((11, 13), NAMES_AND_IDS.items()):

    @probe(f"metadata v{_version}: {_label}")
    def _names_and_ids(
        session: Session, version: int = _version, topics: list[tuple[str | None, str | None]] = _topics
    ) -> Any:
        names = {"known": session.topic(), "other": session.topic(), None: None}
        ids = {"known": session.topic_id(str(names["known"])), "unknown": uuid.UUID(int=77), None: uuid.UUID(int=0)}
        api = messages.api("metadata")
        asked = [api.MetadataRequestTopic(name=names[name], topic_id=ids[known]) for name, known in topics]
        answer = session.call("metadata", version, api.Request(topics=asked, allow_auto_topic_creation=False))
        told = {name: label for label, name in names.items()}
        rows = sorted(
            str((one.error_code, told.get(one.name, one.name), one.topic_id.int == 0)) for one in answer.topics
        )
        return bool(answer.brokers), answer.controller_id >= 0, answer.cluster_id is not None, rows
