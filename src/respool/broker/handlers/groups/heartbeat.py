"""Heartbeat (key 12): keeps a member's session alive and tells the member when its group rebalances."""

from respool.broker.broker import Broker
from respool.broker.handlers.support.coordinator_requests import ask_coordinator
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_code
from respool.broker.handlers.support.rights import READ_GROUP
from respool.broker.outcome import Outcome, Reply
from respool.coordination.groups.group_requests import Heartbeat, HeartbeatReply
from respool.model.coordinator_errors import CoordinatorLoadInProgress
from respool.model.errors import RequestError
from respool.wire.api_table import Api
from respool.wire.codec import ReplyTemplates, Request, encode_reply


@serves(Api.HEARTBEAT, versions=(0, 4), rights=(READ_GROUP,))
def heartbeat(request: Request, broker: Broker) -> Outcome:
    body = request.body
    question = Heartbeat(
        group_id=body.group_id,
        generation=body.generation_id,
        member_id=body.member_id,
        instance_id=getattr(body, "group_instance_id", None),
    )

    def encode(answer: HeartbeatReply | RequestError) -> Reply:
        error = answer if isinstance(answer, RequestError) else answer.error
        # While a group is loading, no member is expired, and some clients treat any error here as fatal. Once the
        # group is loaded, every member gets a full session timeout.
        if error is None or isinstance(error, CoordinatorLoadInProgress):
            return [_TEMPLATES.encode(request, None, _done)]
        return [encode_reply(request, {"throttle_time": 0, "error_code": error_code(error)})]

    refusal = broker.access.refusal(request, READ_GROUP, body.group_id)
    return ask_coordinator(broker.groups.runtimes, body.group_id, question, encode, refusal=refusal)


def _done() -> dict[str, int]:
    return {"throttle_time": 0, "error_code": 0}


_TEMPLATES = ReplyTemplates()
