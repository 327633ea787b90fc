"""ListPartitionReassignments (key 46): the partitions that are being reassigned (KIP-455).

Requested partitions that are not being reassigned are omitted; no topics named (null) means all.
"""

from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import by_topic, error_fields
from respool.broker.handlers.support.rights import DESCRIBE_CLUSTER
from respool.broker.outcome import Reply
from respool.cluster.partition_requests import reassignments
from respool.model.ids import TopicPartition
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply


@serves(Api.LIST_PARTITION_REASSIGNMENTS, versions=(0, 0), rights=(DESCRIBE_CLUSTER,))
def list_partition_reassignments(request: Request, broker: Broker) -> Reply:
    refusal = broker.access.refusal(request, DESCRIBE_CLUSTER)
    if refusal is not None:
        refused = {"throttle_time": 0, **error_fields(refusal), "topics": ()}
        return [encode_reply(request, refused)]
    moving = reassignments(broker.catalog.view())
    if request.body.topics is not None:
        asked = {
            TopicPartition(topic.name, number)
            for topic in request.body.topics
            for number in topic.partition_indexes
        }
        moving = {of: image for of, image in moving.items() if of in asked}
    fields = {
        "throttle_time": 0,
        **error_fields(None),
        "topics": [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": number,
                        "replicas": image.replicas,
                        "adding_replicas": image.adding,
                        "removing_replicas": image.removing,
                    }
                    for number, image in images
                ],
            }
            for topic, images in by_topic(moving)
        ],
    }
    return [encode_reply(request, fields)]
