"""InitProducerId: who one is to brokers, with a transactional id or without."""

from typing import Any

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import refused
from respool.client.kafka.coordinator import Coordinator
from respool.client.kafka.partition_queue import Identity
from respool.wire.api_table import Api

NO_PRODUCER = Identity(-1, -1)


def new_identity(cluster: Cluster) -> Identity:
    """An id under which brokers know repeats. Asked for once.

    Raises:
        BrokerUnreachable, BrokerRefused
    """
    fields = _fields(None, timeout_ms=0, before=NO_PRODUCER)
    reply = cluster.request_any(Api.INIT_PRODUCER_ID, fields)
    if reply.error_code:
        raise refused("InitProducerId", reply.error_code)
    return _identity_in(reply)


def take_id(
    cluster: Cluster, transactional_id: str, *, timeout_ms: int, before: Identity = NO_PRODUCER
) -> Identity:
    """Be the one who writes under this transactional id. Whoever was before is fenced; what they had open is aborted.

    With `before` only if that is who had it.

    Raises:
        BrokerUnreachable, BrokerRefused
    """
    reply = Coordinator(cluster, transactional_id, is_transaction=True).ask(
        Api.INIT_PRODUCER_ID,
        _fields(transactional_id, timeout_ms=timeout_ms, before=before),
        doing=f"taking transactional id {transactional_id!r}",
    )
    return _identity_in(reply)


def _fields(transactional_id: str | None, *, timeout_ms: int, before: Identity) -> dict[str, Any]:
    return {
        "transactional_id": transactional_id,
        "transaction_timeout": timeout_ms,
        "producer_id": before.producer_id,
        "producer_epoch": before.epoch,
    }


def _identity_in(reply: Any) -> Identity:
    return Identity(int(reply.producer_id), int(reply.producer_epoch))
