"""DescribeGroups (key 15): the members of groups and their assignments.

A group that does not exist is described as Dead without an error; from version 6 on, as GROUP_ID_NOT_FOUND (KIP-1043).
"""

from functools import partial

from respool.broker.broker import Broker
from respool.broker.handlers.support.coordinator_requests import ask_coordinators
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_fields
from respool.broker.handlers.support.rights import DESCRIBE_GROUP, NOT_ASKED
from respool.broker.outcome import Reply
from respool.coordination.groups.group_requests import DescribedGroup, DescribeGroups
from respool.model.coordinator_errors import GroupIdNotFound
from respool.model.errors import RequestError
from respool.model.security.acl import AclResource
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply

NOT_FOUND_VERSION = 6


@serves(Api.DESCRIBE_GROUPS, versions=(0, 6), rights=(DESCRIBE_GROUP,))
async def describe_groups(request: Request, broker: Broker) -> Reply:
    groups = await ask_coordinators(
        broker.groups.runtimes,
        request.body.groups,
        check=partial(broker.access.check, request, DESCRIBE_GROUP),
        name_of=str,
        ask=lambda group_ids: DescribeGroups(group_ids=group_ids),
        results_of=lambda reply: reply.groups,
        refuse=lambda group_id, error: DescribedGroup(group_id=group_id, error=error),
    )
    fields = {
        "throttle_time": 0,
        "groups": [_group_fields(request, broker, group) for group in groups],
    }
    return [encode_reply(request, fields)]


def _group_fields(request: Request, broker: Broker, group: DescribedGroup) -> dict[str, object]:
    asks_operations = getattr(request.body, "include_authorized_operations", False)
    return {
        **error_fields(_error(request, group)),
        "group_id": group.group_id,
        "group_state": group.state,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol_name,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata,
                "member_assignment": member.assignment,
            }
            for member in group.members
        ],
        "authorized_operations": (
            broker.access.operations(request, AclResource.GROUP, group.group_id)
            if asks_operations and group.error is None
            else NOT_ASKED
        ),
    }


def _error(request: Request, group: DescribedGroup) -> RequestError | None:
    if isinstance(group.error, GroupIdNotFound) and request.version < NOT_FOUND_VERSION:
        return None
    return group.error
