"""ShareGroupDescribe (key 77): share groups with their members and assignments."""

from dataclasses import replace
from functools import partial

from respool.broker.broker import Broker
from respool.broker.handlers.support.coordinator_requests import ask_coordinators
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_fields
from respool.broker.handlers.support.rights import (
    DESCRIBE_GROUP,
    DESCRIBE_TOPIC,
    NOT_ASKED,
)
from respool.broker.outcome import Reply
from respool.coordination.groups.share.share_group_requests import (
    DescribedShareGroup,
    DescribedShareMember,
    ShareGroupDescribe,
)
from respool.model.security.acl import AclResource
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply


@serves(Api.SHARE_GROUP_DESCRIBE, versions=(1, 1), rights=(DESCRIBE_GROUP, DESCRIBE_TOPIC))
async def share_group_describe(request: Request, broker: Broker) -> Reply:
    body = request.body
    groups = await ask_coordinators(
        broker.groups.runtimes,
        body.group_ids,
        check=partial(broker.access.check, request, DESCRIBE_GROUP),
        name_of=str,
        ask=lambda group_ids: ShareGroupDescribe(group_ids=group_ids),
        results_of=lambda answer: answer.groups,
        refuse=lambda group_id, error: DescribedShareGroup(group_id=group_id, error=error),
    )
    asks_operations = body.include_authorized_operations
    fields = {
        "throttle_time": 0,
        "groups": [
            _group_fields(
                _as_shown(request, broker, group),
                operations=broker.access.operations(request, AclResource.GROUP, group.group_id)
                if asks_operations
                else NOT_ASKED,
            )
            for group in groups
        ],
    }
    return [encode_reply(request, fields)]


def _as_shown(request: Request, broker: Broker, group: DescribedShareGroup) -> DescribedShareGroup:
    """The group, or without its members if the client may not know of a topic that they read."""
    if not broker.access.is_on:
        return group
    topics = {
        name
        for member in group.members
        for name in (*member.topic_names, *(one.topic_name for one in member.assignment))
    }
    for name in sorted(topics):
        refusal = broker.access.refusal(request, DESCRIBE_TOPIC, name)
        if refusal is not None:
            return replace(group, members=(), error=refusal)
    return group


def _group_fields(group: DescribedShareGroup, *, operations: int) -> dict[str, object]:
    return {
        **error_fields(group.error),
        "group_id": group.group_id,
        "group_state": group.state,
        "group_epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor_name": group.assignor,
        "members": [_member_fields(member) for member in group.members],
        "authorized_operations": operations if group.error is None else NOT_ASKED,
    }


def _member_fields(member: DescribedShareMember) -> dict[str, object]:
    return {
        "member_id": member.member_id,
        "rack_id": member.rack_id,
        "member_epoch": member.member_epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": member.topic_names,
        "assignment": {
            "topic_partitions": [
                {
                    "topic_id": one.topic_id,
                    "topic_name": one.topic_name,
                    "partitions": one.partitions,
                }
                for one in member.assignment
            ]
        },
    }
