"""ListGroups (key 16): the groups that this broker coordinates, optionally filtered by state or type."""

from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_code
from respool.broker.handlers.support.rights import DESCRIBE_CLUSTER, DESCRIBE_GROUP
from respool.broker.outcome import Reply
from respool.coordination.groups.group_requests import ListGroups, ListGroupsReply
from respool.model.errors import RequestError
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply


@serves(Api.LIST_GROUPS, versions=(0, 5), rights=(DESCRIBE_CLUSTER | DESCRIBE_GROUP,))
async def list_groups(request: Request, broker: Broker) -> Reply:
    question = ListGroups(
        states=frozenset(getattr(request.body, "states_filter", ())),
        types=frozenset(getattr(request.body, "types_filter", ())),
    )
    access = broker.access
    sees_all = access.sees(request, DESCRIBE_CLUSTER)
    replies: list[ListGroupsReply] = []
    refused: RequestError | None = None
    try:
        replies = await broker.groups.runtimes.ask_all(question)
    except RequestError as error:
        # A partial list would look complete.
        refused = error
    fields = {
        "throttle_time": 0,
        "error_code": error_code(refused),
        "groups": [
            {
                "group_id": group.group_id,
                "protocol_type": group.protocol_type,
                "group_state": group.state,
                "group_type": group.type,
            }
            for reply in replies
            for group in reply.groups
            if sees_all or access.sees(request, DESCRIBE_GROUP, group.group_id)
        ],
    }
    return [encode_reply(request, fields)]
