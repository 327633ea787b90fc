"""DescribeQuorum (key 55): who the controller is, and which brokers could be, in the terms of KRaft.

There is no metadata log here: the metadata is in etcd, or with a single broker in its data folder. So "voters" are the
brokers that run, because each of them may be elected controller, and offsets are revisions of the metadata store. How
far the other brokers have read is unknown, and so is when: each counts as being where this one is, without times.
"""

from typing import Any

from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_fields
from respool.broker.handlers.support.rights import DESCRIBE_CLUSTER
from respool.broker.outcome import Reply
from respool.model.cluster import NO_CONTROLLER
from respool.model.errors import LeaderNotAvailable, RequestError, UnknownTopicOrPartition
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply

METADATA_TOPIC = "__cluster_metadata"
LISTENER = "PLAINTEXT"
# Revisions have 64 bits, epochs 32.
_EPOCH_BITS = 0x7FFF_FFFF


@serves(Api.DESCRIBE_QUORUM, versions=(0, 2), rights=(DESCRIBE_CLUSTER,))
def describe_quorum(request: Request, broker: Broker) -> Reply:
    refusal = broker.access.refusal(request, DESCRIBE_CLUSTER)
    if refusal is not None:
        return [encode_reply(request, {**error_fields(refusal), "topics": (), "nodes": ()})]
    topics = [
        {
            "topic_name": topic.topic_name,
            "partitions": [
                _partition(broker, topic.topic_name, one.partition_index)
                for one in topic.partitions
            ],
        }
        for topic in request.body.topics
    ]
    nodes = [
        {
            "node_id": one.id,
            "listeners": [{"name": LISTENER, "host": one.host, "port": one.port}],
        }
        for one in broker.image.brokers.values()
    ]
    return [encode_reply(request, {**error_fields(None), "topics": topics, "nodes": nodes})]


def _partition(broker: Broker, topic: str, number: int) -> dict[str, Any]:
    image = broker.image
    error: RequestError | None = None
    if (topic, number) != (METADATA_TOPIC, 0):
        error = UnknownTopicOrPartition(f"only {METADATA_TOPIC}-0 has a quorum")
    elif image.controller == NO_CONTROLLER:
        error = LeaderNotAvailable("the cluster has no controller now")
    voters = [] if error is not None else [_voter(broker, one) for one in sorted(image.brokers)]
    return {
        "partition_index": number,
        **error_fields(error),
        "leader_id": NO_CONTROLLER if error is not None else image.controller,
        # It grows with every election.
        "leader_epoch": image.controller_revision & _EPOCH_BITS,
        "high_watermark": image.revision,
        "current_voters": voters,
        "observers": (),
    }


def _voter(broker: Broker, number: Any) -> dict[str, Any]:
    entry = broker.catalog.registry().get(number)
    return {
        "replica_id": number,
        "replica_directory_id": None if entry is None else entry.folder,
        "log_end_offset": broker.image.revision,
    }
