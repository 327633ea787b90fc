"""ConsumerGroupHeartbeat (key 68): the only request that members of a KIP-848 group send to their coordinator."""

from typing import Any

from respool.broker.broker import Broker
from respool.broker.handlers.support.coordinator_requests import ask_coordinator
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_fields
from respool.broker.handlers.support.rights import DESCRIBE_TOPIC, READ_GROUP
from respool.broker.outcome import Outcome, Reply
from respool.coordination.groups.consumer.consumer_requests import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatReply,
)
from respool.coordination.groups.consumer.partition_sets import PartitionSet, partition_set
from respool.model.errors import RequestError
from respool.model.ids import ZERO_TOPIC_ID
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply
from respool.wire.shape import milliseconds

# From this version on members generate their own ids (KIP-1082) and may subscribe by a regular expression.
MEMBER_CHOOSES_ID_VERSION = 1


@serves(Api.CONSUMER_GROUP_HEARTBEAT, versions=(0, 1), rights=(READ_GROUP, DESCRIBE_TOPIC))
def consumer_group_heartbeat(request: Request, broker: Broker) -> Outcome:
    def encode(answer: ConsumerGroupHeartbeatReply | RequestError) -> Reply:
        if isinstance(answer, RequestError):
            answer = ConsumerGroupHeartbeatReply(error=answer)
        fields = {
            "throttle_time": 0,
            **error_fields(answer.error),
            "member_id": answer.member_id,
            "member_epoch": answer.member_epoch,
            "heartbeat_interval": answer.heartbeat_interval_ms,
            "assignment": None if answer.assignment is None else _assignment(answer.assignment),
        }
        return [encode_reply(request, fields)]

    return ask_coordinator(
        broker.groups.runtimes,
        request.body.group_id,
        _question(request),
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


def _question(request: Request) -> ConsumerGroupHeartbeat:
    body = request.body
    return ConsumerGroupHeartbeat(
        group_id=body.group_id,
        member_id=body.member_id,
        member_epoch=body.member_epoch,
        instance_id=body.instance_id,
        rack_id=body.rack_id,
        client_id=request.client_id or "",
        client_host=request.client_host,
        rebalance_timeout_ms=milliseconds(body.rebalance_timeout),
        topic_names=body.subscribed_topic_names,
        topic_pattern=getattr(body, "subscribed_topic_regex", None),
        assignor=body.server_assignor,
        owned=None if body.topic_partitions is None else _owned(body.topic_partitions),
        chooses_member_id=request.version >= MEMBER_CHOOSES_ID_VERSION,
    )


def _owned(topics: tuple[Any, ...]) -> PartitionSet:
    return partition_set((one.topic_id or ZERO_TOPIC_ID, one.partitions) for one in topics)


def _assignment(assigned: PartitionSet) -> dict[str, object]:
    return {
        "topic_partitions": [
            {"topic_id": topic_id, "partitions": sorted(partitions)}
            for topic_id, partitions in assigned.items()
        ]
    }
