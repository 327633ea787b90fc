"""InitProducerId: obtains a producer id and epoch, with or without a transactional id."""

from typing import Any

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import Code, refused
from respool.client.kafka.coordinator import Coordinator
from respool.client.kafka.errors import BrokerRefused
from respool.client.kafka.partition_queue import ProducerIdentity
from respool.wire.api_table import Api

NO_PRODUCER = ProducerIdentity(-1, -1)


def new_producer_id(cluster: Cluster) -> ProducerIdentity:
    """Request a producer id without a transactional id. One attempt.

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
    """Become the producer of this transactional id; its previous producer is fenced and its open transaction aborted.

    With `before`, this succeeds only if that is the current identity.

    Raises:
        BrokerUnreachable, BrokerRefused
    """
    reply = Coordinator(cluster, transactional_id, is_transaction=True).request(
        Api.INIT_PRODUCER_ID,
        _init_fields(transactional_id, timeout_ms=timeout_ms, before=before),
        doing=f"InitProducerId of transactional id {transactional_id!r}",
    )
    return identity_in(reply)


def fence_producer(cluster: Cluster, transactional_id: str, *, timeout_ms: int) -> ProducerIdentity:
    """Abort any open transaction of this transactional id by fencing its producer; return the new identity.

    When this returns, the transaction has ended in all its partitions.

    Raises:
        BrokerUnreachable, BrokerRefused
    """
    try:
        return init_producer_id(cluster, transactional_id, timeout_ms=timeout_ms)
    except BrokerRefused as error:
        # The broker's maximum timeout was lowered since. The next producer sets its own timeout.
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
    """The producer id and epoch in an InitProducerId or EndTxn reply."""
    return ProducerIdentity(int(reply.producer_id), int(reply.producer_epoch))
