"""InitProducerId: the identity that a producer writes under, with a transactional id or without."""

from typing import Any

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import Code, refused
from respool.client.kafka.coordinator import Coordinator
from respool.client.kafka.errors import BrokerRefused
from respool.client.kafka.partition_queue import ProducerIdentity
from respool.wire.api_table import Api

NO_PRODUCER = ProducerIdentity(-1, -1)


def new_producer_id(cluster: Cluster) -> ProducerIdentity:
    """A producer id without a transactional id. Asked for once.

    Raises:
        BrokerUnreachable, BrokerRefused
    """
    reply = cluster.request_any(
        Api.INIT_PRODUCER_ID, _init_fields(None, timeout_ms=0, before=NO_PRODUCER)
    )
    if reply.error_code:
        raise refused("InitProducerId", reply.error_code)
    return identity_in(reply)


def init_producer_id(
    cluster: Cluster,
    transactional_id: str,
    *,
    timeout_ms: int,
    before: ProducerIdentity = NO_PRODUCER,
) -> ProducerIdentity:
    """Become the producer of this transactional id. The one before is fenced, and its open transaction aborted.

    With `before`, only if that is the one before.

    Raises:
        BrokerUnreachable, BrokerRefused
    """
    reply = Coordinator(cluster, transactional_id, is_transaction=True).ask(
        Api.INIT_PRODUCER_ID,
        _init_fields(transactional_id, timeout_ms=timeout_ms, before=before),
        doing=f"InitProducerId of transactional id {transactional_id!r}",
    )
    return identity_in(reply)


def fence_producer(cluster: Cluster, transactional_id: str, *, timeout_ms: int) -> ProducerIdentity:
    """End whatever the producer has open, by taking its place; return the identity its successor would have.

    Once this returns, the transaction has ended in all its partitions.

    Raises:
        BrokerUnreachable, BrokerRefused
    """
    try:
        return init_producer_id(cluster, transactional_id, timeout_ms=timeout_ms)
    except BrokerRefused as error:
        # The longest timeout that is allowed has become shorter since. The next producer brings its own.
        if error.code != Code.invalid_transaction_timeout:
            raise
        return init_producer_id(cluster, transactional_id, timeout_ms=1)


def _init_fields(
    transactional_id: str | None, *, timeout_ms: int, before: ProducerIdentity
) -> dict[str, Any]:
    return {
        "transactional_id": transactional_id,
        "transaction_timeout": timeout_ms,
        "producer_id": before.producer_id,
        "producer_epoch": before.epoch,
    }


def identity_in(reply: Any) -> ProducerIdentity:
    """Of an InitProducerId or EndTxn reply."""
    return ProducerIdentity(int(reply.producer_id), int(reply.producer_epoch))
