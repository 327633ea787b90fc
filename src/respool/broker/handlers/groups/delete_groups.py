"""DeleteGroups (key 42): delete groups without members, and their offsets. Each group succeeds or fails on its own."""

import asyncio
from collections.abc import Sequence
from functools import partial

from respool.broker.admin_log import quoted
from respool.broker.broker import Broker
from respool.broker.handlers.support.coordinator_requests import ask_coordinators
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_fields
from respool.broker.handlers.support.rights import DELETE_GROUP
from respool.broker.outcome import Reply
from respool.coordination.groups.group_requests import DeleteGroups, GroupResult
from respool.coordination.groups.share.share_group_requests import (
    DeleteShareGroup,
    ShareStatesChanged,
)
from respool.model.coordinator_errors import GroupIdNotFound
from respool.model.errors import RequestError
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply


@serves(Api.DELETE_GROUPS, versions=(0, 3), rights=(DELETE_GROUP,))
async def delete_groups(request: Request, broker: Broker) -> Reply:
    # A group that is named twice is deleted once.
    names = list(dict.fromkeys(request.body.groups_names))
    shares = await _delete_share_groups(
        broker, [name for name in names if broker.access.has(request, DELETE_GROUP, name)]
    )
    others = await ask_coordinators(
        broker.groups.runtimes,
        [name for name in names if name not in shares],
        name_of=str,
        check=partial(broker.access.check, request, DELETE_GROUP),
        ask=lambda group_ids: DeleteGroups(group_ids=group_ids),
        results_of=lambda reply: reply.groups,
        refuse=GroupResult,
    )
    found = {one.group_id: one for one in others} | shares
    results = [found[name] for name in names]
    for one in results:
        if one.error is None:
            broker.admin_log.log(request, f"deleted group {quoted(one.group_id)}")
    fields = {
        "throttle_time": 0,
        "results": [{"group_id": one.group_id, **error_fields(one.error)} for one in results],
    }
    return [encode_reply(request, fields)]


async def _delete_share_groups(broker: Broker, names: Sequence[str]) -> dict[str, GroupResult]:
    """The results of those that are share groups: their replies wait until their state is deleted, too."""

    async def delete(name: str) -> GroupResult:
        try:
            reply: ShareStatesChanged = await broker.groups.ask(
                name, DeleteShareGroup(group_id=name)
            )
        except RequestError as error:
            return GroupResult(name, error)
        return GroupResult(name, reply.error)

    results = await asyncio.gather(*map(delete, names))
    return {one.group_id: one for one in results if not isinstance(one.error, GroupIdNotFound)}
