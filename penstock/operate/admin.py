"""Admin calls that several commands share: topics, offsets, groups, configs, as plain data and with clear errors."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.operate.errors import ExitCode, UserError, not_found, usage_error
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode, error_name

if TYPE_CHECKING:
    from penstock.client.metadata import BrokerAddress, ClusterView, TopicView
    from penstock.operate.session import Session

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
TOPIC_RESOURCE, BROKER_RESOURCE, GROUP_RESOURCE = 2, 4, 32

_NOT_FOUND = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
}


def refuse(code: int, what: str, detail: str | None = None) -> UserError:
    """A broker's error code as something to show."""
    try:
        explanation = ErrorCode(code).message
    except ValueError:
        explanation = "a code that this version does not know"
    kind = ExitCode.NOT_FOUND if code in _NOT_FOUND else ExitCode.REFUSED
    return UserError(f"{what}: {detail or explanation}", f"the broker answered {error_name(code)}", kind)


def cluster(session: Session) -> ClusterView:
    """Brokers and all topics: an answer of megabytes where there are many."""
    return session.client.metadata(None)


def live_brokers(session: Session) -> Mapping[int, BrokerAddress]:
    """Without asking for a single topic."""
    return session.client.metadata(()).brokers


def topic(session: Session, name: str) -> TopicView:
    """One topic, or an error that names the nearest ones."""
    view = cluster(session)
    found = view.topics.get(name)
    if found is None:
        raise not_found("topic", name, (t.name for t in view.topics.values() if not is_hidden(t.name, t.is_internal)))
    return found


def matching(session: Session, names: Iterable[str]) -> list[TopicView]:
    """Topics by name, or, for a name that begins with ^, all that the regular expression matches; each once.

    Internal ones match only an expression that begins with ^__, as if it named them.
    """
    found: dict[str, TopicView] = {}
    view: ClusterView | None = None
    for name in names:
        if not name.startswith("^"):
            found[name] = topic(session, name)
            continue
        view = view or cluster(session)
        try:
            pattern = re.compile(name)
        except re.error as error:
            raise usage_error(f"{name!r} is no regular expression: {error}", "for example '^orders-.*'") from None
        known = sorted(view.topics.values(), key=lambda t: t.name)
        shown = [t for t in known if name.startswith("^__") or not is_hidden(t.name, t.is_internal)]
        matched = {t.name: t for t in shown if pattern.match(t.name)}
        if not matched:
            raise not_found("topic that matches", name, (t.name for t in shown))
        found |= matched
    return list(found.values())


def is_hidden(name: str, is_internal: bool = False) -> bool:
    return is_internal or name.startswith("__")


def list_offsets(
    session: Session, wanted: Mapping[tuple[str, int], int], *, committed: bool = False
) -> dict[tuple[str, int], tuple[int, int]]:
    """(offset, timestamp) of each partition at its timestamp or special position; those without leader are left out."""
    api = messages.api("list_offsets")
    view = session.client.metadata({name for name, _ in wanted})
    by_leader: dict[int, dict[str, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    for (name, partition), timestamp in wanted.items():
        by_leader[view.leader(name, partition)][name].append((partition, timestamp))
    found = {}
    for leader, topics in by_leader.items():
        if leader < 0:
            continue
        rows = [
            api.request_struct("ListOffsetsTopic")(
                name=name,
                partitions=[
                    api.request_struct("ListOffsetsPartition")(partition_index=index, timestamp=timestamp)
                    for index, timestamp in partitions
                ],
            )
            for name, partitions in topics.items()
        ]
        request = api.Request(replica_id=-1, isolation_level=int(committed), topics=rows)
        answer = session.client.call_broker(leader, "list_offsets", request, highest_version=9)
        for row in answer.topics:
            for p in row.partitions:
                if p.error_code:
                    raise refuse(p.error_code, f"offsets of {row.name}-{p.partition_index}")
                found[row.name, p.partition_index] = (p.offset, p.timestamp)
    return found


def describe_configs(session: Session, kind: int, name: str, node_id: int | None = None) -> list[Any]:
    api = messages.api("describe_configs")
    resource = api.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    request = api.Request(resources=[resource], include_synonyms=True, include_documentation=True)
    if node_id is None:
        answer = session.client.call_any("describe_configs", request)
    else:
        answer = session.client.call_broker(node_id, "describe_configs", request)
    result = answer.results[0]
    if result.error_code:
        raise refuse(result.error_code, name or "all brokers", result.error_message)
    return list(result.configs)


def alter_configs(
    session: Session,
    kind: int,
    name: str,
    changes: Iterable[tuple[str, int, str | None]],
    *,
    validate_only: bool = False,
) -> None:
    """Incremental changes: (key, operation 0 set / 1 delete / 2 append / 3 subtract, value)."""
    api = messages.api("incremental_alter_configs")
    rows = [api.AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in changes]
    resource = api.AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)
    request = api.Request(resources=[resource], validate_only=validate_only)
    if kind == BROKER_RESOURCE and name:
        answer = session.client.call_broker(int(name), "incremental_alter_configs", request)
    else:
        answer = session.client.call_controller("incremental_alter_configs", request)
    for row in answer.responses:
        if row.error_code:
            raise refuse(row.error_code, row.resource_name or "all brokers", row.error_message)


def on_every_broker(session: Session, api_name: str, request: Any, **options: Any) -> dict[int, Any]:
    """One answer from each live broker."""
    return {
        node: session.client.call_broker(node, api_name, request, **options) for node in sorted(live_brokers(session))
    }


def committed_offsets(session: Session, group: str) -> dict[tuple[str, int], tuple[int, str | None]]:
    """All offsets that a group has committed, with their metadata."""
    api = messages.api("offset_fetch").load_all_versions()
    request = api.Request(group_id=group, topics=None, require_stable=False)
    answer = session.client.call_coordinator("group", group, "offset_fetch", request, highest_version=7)
    if answer.error_code:
        raise refuse(answer.error_code, f"group {group}")
    return {
        (row.name, p.partition_index): (p.committed_offset, p.metadata or None)
        for row in answer.topics
        for p in row.partitions
        if p.committed_offset >= 0
    }
