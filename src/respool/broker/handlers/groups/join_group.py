"""JoinGroup (key 11): join or rejoin a group. The reply waits for the generation to begin, possibly for minutes."""

from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_code
from respool.broker.handlers.support.rights import READ_GROUP
from respool.broker.outcome import Reply
from respool.coordination.groups.group_requests import JoinGroup, JoinGroupReply, Protocol
from respool.model.errors import RequestError
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply
from respool.wire.shape import milliseconds

# The first versions in which clients understand MEMBER_ID_REQUIRED and a null protocol name.
MEMBER_ID_REQUIRED_VERSION = 4
NULL_PROTOCOL_VERSION = 7
SKIP_ASSIGNMENT_VERSION = 9


@serves(Api.JOIN_GROUP, versions=(0, 9), rights=(READ_GROUP,))
async def join_group(request: Request, broker: Broker) -> Reply:
    body = request.body
    request.waits_for_others = True
    try:
        broker.access.check(request, READ_GROUP, body.group_id)
        reply: JoinGroupReply = await broker.groups.ask(body.group_id, _question(request))
        # The reply may have waited for other members for minutes.
        broker.access.check(request, READ_GROUP, body.group_id)
    except RequestError as error:
        reply = JoinGroupReply(error=error, member_id=body.member_id)
    # In older versions the field is not nullable.
    no_protocol = None if request.version >= NULL_PROTOCOL_VERSION else ""
    fields = {
        "throttle_time": 0,
        "error_code": error_code(reply.error),
        "generation_id": reply.generation,
        "protocol_type": reply.protocol_type,
        "protocol_name": no_protocol if reply.protocol_name is None else reply.protocol_name,
        "leader": reply.leader,
        "skip_assignment": reply.skip_assignment,
        "member_id": reply.member_id,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "metadata": member.metadata,
            }
            for member in reply.members
        ],
    }
    return [encode_reply(request, fields)]


def _question(request: Request) -> JoinGroup:
    body = request.body
    session_timeout = body.session_timeout
    return JoinGroup(
        group_id=body.group_id,
        member_id=body.member_id,
        instance_id=getattr(body, "group_instance_id", None),
        client_id=request.client_id or "",
        client_host=request.client_host,
        session_timeout_ms=milliseconds(session_timeout),
        rebalance_timeout_ms=milliseconds(getattr(body, "rebalance_timeout", session_timeout)),
        protocol_type=body.protocol_type,
        protocols=tuple(Protocol(one.name, one.metadata) for one in body.protocols),
        reason=getattr(body, "reason", None),
        requires_known_member_id=request.version >= MEMBER_ID_REQUIRED_VERSION,
        supports_skipping_assignment=request.version >= SKIP_ASSIGNMENT_VERSION,
    )
