"""DescribeProducers (key 61): which producers a partition remembers, for finding transactions that hang (KIP-664)."""

from respool.broker.broker import Broker
from respool.broker.handlers.error_fields import error_fields
from respool.broker.handlers.unknown_topic import why_unknown
from respool.broker.outcome import Reply
from respool.model.errors import RequestError
from respool.wire.codec import Request, encode_reply


def describe_producers(request: Request, broker: Broker) -> Reply:
    topics = [
        {
            "name": topic.name,
            "partitions": [
                # Each once, however often it was asked for: the answer is large.
                _answer(broker, topic.name, number)
                for number in dict.fromkeys(topic.partition_indexes)
            ],
        }
        for topic in request.body.topics
    ]
    return [encode_reply(request, {"throttle_time": 0, "topics": topics})]


def _answer(broker: Broker, topic: str, number: int) -> dict[str, object]:
    try:
        if topic not in broker.image.topics:
            raise why_unknown(topic)
        producers = broker.partitions.find_leader(topic, number).log.active_producers()
    except RequestError as error:
        return {"partition_index": number, **error_fields(error), "active_producers": ()}
    return {
        "partition_index": number,
        **error_fields(None),
        "active_producers": [
            {
                "producer_id": one.producer_id,
                "producer_epoch": one.epoch,
                "last_sequence": one.last_sequence,
                "last_timestamp": one.active_at_ms,
                "coordinator_epoch": one.coordinator_epoch,
                "current_txn_start_offset": one.current_txn_first_offset,
            }
            for one in producers
        ],
    }
