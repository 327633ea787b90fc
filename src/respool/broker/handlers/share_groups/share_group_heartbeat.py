"""ShareGroupHeartbeat (key 76): with this request members of a share group join, stay and leave."""

from respool.broker.broker import Broker
from respool.broker.handlers.support.coordinator_requests import ask_coordinator
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_fields
from respool.broker.handlers.support.rights import DESCRIBE_TOPIC, READ_GROUP
from respool.broker.outcome import Outcome, Reply
from respool.coordination.groups.share.share_group_requests import (
    ShareGroupHeartbeat,
    ShareGroupHeartbeatReply,
)
from respool.model.errors import RequestError
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply


@serves(Api.SHARE_GROUP_HEARTBEAT, versions=(1, 1), rights=(READ_GROUP, DESCRIBE_TOPIC))
def share_group_heartbeat(request: Request, broker: Broker) -> Outcome:
    def encode(answer: ShareGroupHeartbeatReply | RequestError) -> Reply:
        if isinstance(answer, RequestError):
            answer = ShareGroupHeartbeatReply(error=answer)
        assignment = None
        if answer.assignment is not None:
            assignment = {
                "topic_partitions": [
                    {"topic_id": topic_id, "partitions": sorted(numbers)}
                    for topic_id, numbers in answer.assignment.items()
                ]
            }
        fields = {
            "throttle_time": 0,
            **error_fields(answer.error),
            "member_id": answer.member_id,
            "member_epoch": answer.member_epoch,
            "heartbeat_interval": answer.heartbeat_interval_ms,
            "assignment": assignment,
        }
        return [encode_reply(request, fields)]

    body = request.body
    question = ShareGroupHeartbeat(
        group_id=body.group_id,
        member_id=body.member_id,
        member_epoch=body.member_epoch,
        rack_id=body.rack_id,
        client_id=request.client_id or "",
        client_host=request.client_host,
        topic_names=body.subscribed_topic_names,
    )
    return ask_coordinator(
        broker.groups.runtimes,
        body.group_id,
        question,
        encode,
        refusal=_refusal(request, broker),
    )


def _refusal(request: Request, broker: Broker) -> RequestError | None:
    access, body = broker.access, request.body
    if not access.is_on:
        return None
    refusals = (
        access.refusal(request, DESCRIBE_TOPIC, name) for name in body.subscribed_topic_names or ()
    )
    return access.refusal(request, READ_GROUP, body.group_id) or next(filter(None, refusals), None)
