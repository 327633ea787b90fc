"""OffsetForLeaderEpoch (key 23): the end offset of a leader epoch; consumers detect truncation by it (KIP-320)."""

from typing import Any

from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.rights import CLUSTER_ACTION, DESCRIBE_TOPIC
from respool.broker.outcome import Reply
from respool.model.errors import RequestError
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply


@serves(
    Api.OFFSET_FOR_LEADER_EPOCH,
    versions=(2, 4),
    rights=(DESCRIBE_TOPIC | CLUSTER_ACTION,),
)
def offset_for_leader_epoch(request: Request, broker: Broker) -> Reply:
    topics = [
        {
            "topic": topic.topic,
            "partitions": [_answer(request, broker, topic.topic, one) for one in topic.partitions],
        }
        for topic in request.body.topics
    ]
    return [encode_reply(request, {"throttle_time": 0, "topics": topics})]


def _answer(request: Request, broker: Broker, topic: str, asked: Any) -> dict[str, object]:
    try:
        if not broker.access.has(request, CLUSTER_ACTION):
            broker.access.check(request, DESCRIBE_TOPIC, topic)
        partition = broker.partitions.find_leader(broker.image.log_name(topic), asked.partition)
        partition.check_leader_epoch(asked.current_leader_epoch)
        leader_epoch, end_offset = partition.log.end_of_epoch(asked.leader_epoch)
    except RequestError as error:
        return {"partition": asked.partition, "error_code": error.code}
    return {
        "partition": asked.partition,
        "error_code": 0,
        "leader_epoch": leader_epoch,
        "end_offset": end_offset,
    }
