"""SyncGroup (key 14): get a member's assignment from the group leader; the reply waits until the leader sends it."""

from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_code
from respool.broker.handlers.support.rights import READ_GROUP
from respool.broker.outcome import Reply
from respool.coordination.groups.group_requests import MemberAssignment, SyncGroup, SyncGroupReply
from respool.model.coordinator_errors import CoordinatorLoadInProgress, RebalanceInProgress
from respool.model.errors import RequestError
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply


@serves(Api.SYNC_GROUP, versions=(0, 5), rights=(READ_GROUP,))
async def sync_group(request: Request, broker: Broker) -> Reply:
    body = request.body
    request.waits_for_others = True
    question = SyncGroup(
        group_id=body.group_id,
        generation=body.generation_id,
        member_id=body.member_id,
        instance_id=getattr(body, "group_instance_id", None),
        protocol_type=getattr(body, "protocol_type", None),
        protocol_name=getattr(body, "protocol_name", None),
        assignments=tuple(
            MemberAssignment(one.member_id, one.assignment) for one in body.assignments
        ),
    )
    try:
        broker.access.check(request, READ_GROUP, body.group_id)
        reply: SyncGroupReply = await broker.groups.ask(body.group_id, question)
        # The reply may have waited long for the group's leader.
        broker.access.check(request, READ_GROUP, body.group_id)
    except CoordinatorLoadInProgress as error:
        # The pending assignment is lost. Some clients do not handle COORDINATOR_LOAD_IN_PROGRESS here; for this code
        # they rejoin.
        reply = SyncGroupReply(error=RebalanceInProgress(error.message))
    except RequestError as error:
        reply = SyncGroupReply(error=error)
    fields = {
        "throttle_time": 0,
        "error_code": error_code(reply.error),
        "protocol_type": reply.protocol_type,
        "protocol_name": reply.protocol_name,
        "assignment": reply.assignment,
    }
    return [encode_reply(request, fields)]
