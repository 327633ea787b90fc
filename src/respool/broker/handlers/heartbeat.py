"""Heartbeat (key 12): a member is still there, and learns whether its group goes on without change."""

from respool.broker.broker import Broker
from respool.broker.handlers.error_fields import error_code
from respool.broker.handlers.when_answered import reply_when_answered
from respool.broker.outcome import Outcome, Reply
from respool.coordination.groups.group_requests import Heartbeat, HeartbeatReply
from respool.model.errors import CoordinatorLoadInProgress, RequestError
from respool.wire.codec import ReplyTemplates, Request, encode_reply


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
        # While the group is loaded nobody is thrown out of it, and some clients give up at any other answer. Those
        # who stay away are given their whole session once it is there.
        if error is None or isinstance(error, CoordinatorLoadInProgress):
            return [_TEMPLATES.encode(request, None, _done)]
        return [encode_reply(request, {"throttle_time": 0, "error_code": error_code(error)})]

    return reply_when_answered(broker.groups.runtimes, body.group_id, question, encode)


def _done() -> dict[str, int]:
    return {"throttle_time": 0, "error_code": 0}


_TEMPLATES = ReplyTemplates()
