"""69 ConsumerGroupDescribe, v0–1 (KIP-848): epochs, assignor, and what each member has and should have.

v1: member type (1 speaks the consumer protocol, 0 the classic one).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.broker.api.access import operations_on
from penstock.broker.api.describe_groups import NOT_ASKED
from penstock.broker.api.group_support import may_describe_group, may_describe_topic
from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.broker.network.slices import in_slices
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.coordinator.group.admin import ConsumerDescription
    from penstock.coordinator.group.consumer_group import ConsumerMember
    from penstock.coordinator.group.records import Assignment
    from penstock.protocol.shapes import ConsumerGroupDescribe

API = ApiSpec(69, "ConsumerGroupDescribe", 0, 1, takes_long_lists=True)


async def handle(
    broker: Broker, ctx: RequestContext, request: ConsumerGroupDescribe.Request
) -> ConsumerGroupDescribe.Response:
    from penstock.protocol import messages

    api = messages.api("consumer_group_describe")
    groups = []
    async for group_id in in_slices(request.group_ids):
        if not may_describe_group(broker, ctx, group_id):
            groups.append(_failed(api, group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED, None))
            continue
        error, found = await broker.groups.describe_consumer_group(group_id)
        if error is not ErrorCode.NONE:
            groups.append(_failed(api, group_id, error, None))
        elif found is None:
            message = f"Group {group_id} is not a consumer group."
            groups.append(_failed(api, group_id, ErrorCode.GROUP_ID_NOT_FOUND, message))
        elif not _may_see_topics(broker, ctx, found):
            message = "The group has described topic(s) that the client is not authorized to describe."
            groups.append(_hidden(api, found, message))
        else:
            described = _described(broker, api, found)
            if request.include_authorized_operations:
                described.authorized_operations = operations_on(broker, ctx, "GROUP", group_id)
            groups.append(described)
    return api.Response(groups=groups)


def _may_see_topics(broker: Broker, ctx: RequestContext, found: ConsumerDescription) -> bool:
    """Whoever may describe the group may not learn from it of topics that are hidden from him."""
    if broker.authorizer is None:
        return True
    names: set[str] = set()
    for member, target in found.members:
        names.update(member.topic_names)
        for topic_id in (*member.assigned, *target):
            names.add(broker.image.topic_name(topic_id) or "")
    return all(may_describe_topic(broker, ctx, name) for name in sorted(names - {""}))


def _hidden(api: ConsumerGroupDescribe, found: ConsumerDescription, message: str) -> Any:
    group = _failed(api, found.group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, message)
    group.group_state = found.state
    group.group_epoch = found.epoch
    group.assignment_epoch = found.target_epoch
    group.assignor_name = found.assignor
    return group


def _failed(api: ConsumerGroupDescribe, group_id: str, error: ErrorCode, message: str | None) -> Any:
    return api.DescribedGroup(
        error_code=int(error),
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
        authorized_operations=NOT_ASKED,
    )


def _described(broker: Broker, api: ConsumerGroupDescribe, found: ConsumerDescription) -> Any:
    return api.DescribedGroup(
        error_code=0,
        error_message=None,
        group_id=found.group_id,
        group_state=found.state,
        group_epoch=found.epoch,
        assignment_epoch=found.target_epoch,
        assignor_name=found.assignor,
        members=[_member(broker, api, member, target) for member, target in found.members],
        authorized_operations=NOT_ASKED,
    )


def _member(broker: Broker, api: ConsumerGroupDescribe, member: ConsumerMember, target: Assignment) -> Any:
    return api.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        assignment=_assignment(broker, api, member.owned),
        target_assignment=_assignment(broker, api, target),
        member_type=0 if member.classic is not None else 1,
    )


def _assignment(broker: Broker, api: ConsumerGroupDescribe, assignment: Assignment) -> Any:
    named = [(broker.image.topic_name(topic_id), topic_id) for topic_id in assignment]
    return api.Assignment(
        topic_partitions=[
            api.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(assignment[topic_id]))
            for name, topic_id in sorted(named, key=lambda item: (item[0] or "", item[1]))
            if name is not None
        ]
    )


def error_response(
    request: ConsumerGroupDescribe.Request, code: int, message: str | None
) -> ConsumerGroupDescribe.Response:
    from penstock.protocol import messages

    api = messages.api("consumer_group_describe")
    return api.Response(groups=[_failed(api, group_id, ErrorCode(code), message) for group_id in request.group_ids])
