"""LeaveGroup (key 13): leave a group, or remove other members; several at once from version 3 on (KIP-345)."""

from respool.broker.broker import Broker
from respool.broker.handlers.support.coordinator_requests import ask_coordinator
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_code
from respool.broker.handlers.support.rights import READ_GROUP
from respool.broker.outcome import Outcome, Reply
from respool.coordination.groups.group_requests import LeaveGroup, LeaveGroupReply, LeavingMember
from respool.model.errors import RequestError
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply

SEVERAL_MEMBERS_VERSION = 3


@serves(Api.LEAVE_GROUP, versions=(0, 5), rights=(READ_GROUP,))
def leave_group(request: Request, broker: Broker) -> Outcome:
    body = request.body
    question = LeaveGroup(group_id=body.group_id, members=_leaving(request))

    def encode(answer: LeaveGroupReply | RequestError) -> Reply:
        if isinstance(answer, RequestError):
            answer = LeaveGroupReply(error=answer)
        fields = {
            "throttle_time": 0,
            "error_code": error_code(_overall_error(request, answer)),
            "members": [
                {
                    "member_id": member.member_id,
                    "group_instance_id": member.instance_id,
                    "error_code": error_code(member.error),
                }
                for member in answer.members
            ],
        }
        return [encode_reply(request, fields)]

    refusal = broker.access.refusal(request, READ_GROUP, body.group_id)
    return ask_coordinator(broker.groups.runtimes, body.group_id, question, encode, refusal=refusal)


def _leaving(request: Request) -> tuple[LeavingMember, ...]:
    body = request.body
    if request.version < SEVERAL_MEMBERS_VERSION:
        return (LeavingMember(body.member_id),)
    return tuple(
        LeavingMember(one.member_id, one.group_instance_id, getattr(one, "reason", None))
        for one in body.members
    )


def _overall_error(request: Request, answer: LeaveGroupReply) -> RequestError | None:
    """Return the top-level error: old versions name one member and have no other field for its error."""
    if answer.error is None and request.version < SEVERAL_MEMBERS_VERSION:
        return answer.members[0].error
    return answer.error
