"""What ConsumerGroupDescribe and ShareGroupDescribe have in common."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from respool.broker.broker import Broker
from respool.broker.handlers.support.coordinator_requests import ask_coordinators
from respool.broker.handlers.support.replies import error_fields
from respool.broker.handlers.support.rights import DESCRIBE_GROUP, DESCRIBE_TOPIC, NOT_ASKED
from respool.broker.outcome import Reply
from respool.coordination.groups.consumer.consumer_requests import (
    DescribedConsumerGroup,
    NamedPartitions,
)
from respool.coordination.groups.share.share_group_requests import DescribedShareGroup
from respool.model.errors import RequestError
from respool.model.security.acl import AclResource
from respool.wire.codec import Request, encode_reply

GroupT = TypeVar("GroupT", DescribedConsumerGroup, DescribedShareGroup)


async def describe_groups(
    request: Request,
    broker: Broker,
    *,
    ask: Callable[[tuple[str, ...]], Any],
    refuse: Callable[[str, RequestError], GroupT],
    topics_of: Callable[[GroupT], Iterable[str]],
    members_of: Callable[[GroupT], list[Mapping[str, object]]],
) -> Reply:
    """Describe the groups of the request, each as its coordinator knows it and as the client may see it.

    `topics_of` returns the topics that a group's members read; `members_of` the fields of its members.
    """
    body, access = request.body, broker.access
    groups: list[GroupT] = await ask_coordinators(
        broker.groups.runtimes,
        body.group_ids,
        check=partial(access.check, request, DESCRIBE_GROUP),
        name_of=str,
        ask=ask,
        results_of=lambda answer: answer.groups,
        refuse=refuse,
    )
    described = []
    for found in groups:
        shown = _as_shown(request, broker, found, topics_of=topics_of)
        operations = NOT_ASKED
        if body.include_authorized_operations and shown.error is None:
            operations = access.operations(request, AclResource.GROUP, shown.group_id)
        described.append(
            {
                **error_fields(shown.error),
                "group_id": shown.group_id,
                "group_state": shown.state,
                "group_epoch": shown.epoch,
                "assignment_epoch": shown.assignment_epoch,
                "assignor_name": shown.assignor,
                "members": members_of(shown),
                "authorized_operations": operations,
            }
        )
    return [encode_reply(request, {"throttle_time": 0, "groups": described})]


def _as_shown(
    request: Request,
    broker: Broker,
    group: GroupT,
    *,
    topics_of: Callable[[GroupT], Iterable[str]],
) -> GroupT:
    """The group as the client may see it: without members if it may not describe each of their topics."""
    if not broker.access.is_on:
        return group
    for name in sorted(set(topics_of(group))):
        refusal = broker.access.refusal(request, DESCRIBE_TOPIC, name)
        if refusal is not None:
            return replace(group, members=(), error=refusal)
    return group


def assignment_fields(assigned: Iterable[NamedPartitions]) -> dict[str, object]:
    return {
        "topic_partitions": [
            {"topic_id": one.topic_id, "topic_name": one.topic_name, "partitions": one.partitions}
            for one in assigned
        ]
    }
