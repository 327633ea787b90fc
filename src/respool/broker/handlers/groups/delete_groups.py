"""DeleteGroups (key 42): delete groups without members, and their offsets. Each group succeeds or fails on its own."""

from functools import partial

from respool.broker.admin_log import quoted
from respool.broker.broker import Broker
from respool.broker.handlers.support.coordinator_requests import ask_coordinators
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_fields
from respool.broker.handlers.support.rights import DELETE_GROUP
from respool.broker.outcome import Reply
from respool.coordination.groups.group_requests import DeleteGroups, GroupResult
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply


@serves(Api.DELETE_GROUPS, versions=(0, 3), rights=(DELETE_GROUP,))
async def delete_groups(request: Request, broker: Broker) -> Reply:
    results = await ask_coordinators(
        broker.groups.runtimes,
        # A group that is named twice is deleted once.
        list(dict.fromkeys(request.body.groups_names)),
        name_of=str,
        check=partial(broker.access.check, request, DELETE_GROUP),
        ask=lambda group_ids: DeleteGroups(group_ids=group_ids),
        results_of=lambda reply: reply.groups,
        refuse=GroupResult,
    )
    for one in results:
        if one.error is None:
            broker.admin_log.log(request, f"deleted group {quoted(one.group_id)}")
    fields = {
        "throttle_time": 0,
        "results": [{"group_id": one.group_id, **error_fields(one.error)} for one in results],
    }
    return [encode_reply(request, fields)]
