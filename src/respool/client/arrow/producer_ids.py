"""InitProducerId for producers without transactions: an id under which brokers know repeats."""

from respool.client.arrow.cluster import Cluster, refused
from respool.client.arrow.lane import Identity
from respool.wire.api_table import Api

# The first with a code of its own for fenced producers; Kafka 4.x speaks 0 to 5.
INIT_PRODUCER_ID_VERSION = 4
NO_PRODUCER = Identity(-1, -1)


def new_identity(cluster: Cluster) -> Identity:
    """Ask for one, once.

    Raises:
        BrokerUnreachable, BrokerRefused
    """
    fields = {
        "transactional_id": None,
        "transaction_timeout": 0,
        "producer_id": NO_PRODUCER.producer_id,
        "producer_epoch": NO_PRODUCER.epoch,
    }
    reply = cluster.request_any(Api.INIT_PRODUCER_ID, INIT_PRODUCER_ID_VERSION, fields)
    if reply.error_code:
        raise refused("a producer id", reply.error_code)
    return Identity(int(reply.producer_id), int(reply.producer_epoch))
