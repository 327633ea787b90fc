"""DescribeProducers (key 61): a partition's active producers, for finding hanging transactions (KIP-664).

Followers have this state too and answer: `kafka-transactions.sh find-hanging --broker-id` asks one broker about all of
its partitions.
"""

from respool.broker.broker import Broker
from respool.broker.handlers.support.client_errors import why_unknown
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_fields
from respool.broker.handlers.support.rights import READ_TOPIC
from respool.broker.outcome import Reply
from respool.model.errors import NotLeader, RequestError
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply


@serves(Api.DESCRIBE_PRODUCERS, versions=(0, 0), rights=(READ_TOPIC,))
def describe_producers(request: Request, broker: Broker) -> Reply:
    topics = [
        {
            "name": topic.name,
            "partitions": [
                # Each partition once, however often it was named: the answer is large.
                _answer(request, broker, topic.name, number)
                for number in dict.fromkeys(topic.partition_indexes)
            ],
        }
        for topic in request.body.topics
    ]
    return [encode_reply(request, {"throttle_time": 0, "topics": topics})]


def _answer(request: Request, broker: Broker, topic: str, number: int) -> dict[str, object]:
    try:
        broker.access.check(request, READ_TOPIC, topic)
        broker.image.check_is_no_view(topic, instead="ask for")
        if topic not in broker.image.topics:
            raise why_unknown(topic)
        partition = broker.partitions.find_readable(topic, number)
        if partition.leader is None and partition.changing.locked():
            # A thread may be truncating its log, which changes the producer state too.
            raise NotLeader(f"{topic}-{number} is led by another broker, and is being changed here")
        producers = partition.log.active_producers()
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
                "last_timestamp": one.last_timestamp,
                "coordinator_epoch": one.coordinator_epoch,
                "current_txn_start_offset": one.current_txn_first_offset,
            }
            for one in producers
        ],
    }
