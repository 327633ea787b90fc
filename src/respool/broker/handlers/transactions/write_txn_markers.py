"""WriteTxnMarkers (key 27): write the transaction markers that end transactions in these partitions.

Coordinators send it to the leaders of partitions. An operator sends it to end a hanging transaction that its
coordinator has forgotten (`respool transaction abort`, Kafka's `kafka-transactions.sh abort`). The reply is sent when
the markers are committed and durable. From version 2 on each marker carries its transaction version (KIP-1228).

Others need ALTER on the cluster; while ACLs are off nobody has that right, so only brokers may send it, and clients of
the brokers' listener where that is open.
"""

import asyncio
from typing import Any

from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.rights import ALTER_CLUSTER, CLUSTER_ACTION
from respool.broker.outcome import Reply
from respool.coordination.transactions.transaction_requests import TransactionVersion
from respool.model.coordinator_errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
)
from respool.model.errors import InvalidRequest, NotLeader, RequestError, RequestTimedOut
from respool.model.ids import TopicPartition
from respool.records.markers import EndTransactionMarker
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply

# A partition that cannot commit now delays the other answers for at most this long. The coordinator retries.
WAIT_S_MAX = 5.0

Written = RequestError | asyncio.Future[RequestError | None]


@serves(Api.WRITE_TXN_MARKERS, versions=(1, 2), rights=(ALTER_CLUSTER | CLUSTER_ACTION,))
async def write_txn_markers(request: Request, broker: Broker) -> Reply:
    refusal = _refusal(request, broker)
    written = [_begin(broker, one, refusal) for one in request.body.markers]
    waiting = [one for each in written for one in each.values() if isinstance(one, asyncio.Future)]
    if waiting:
        await asyncio.wait(waiting, timeout=WAIT_S_MAX)
    results = [
        {"producer_id": asked.producer_id, "topics": _topics(asked, each)}
        for asked, each in zip(request.body.markers, written, strict=True)
    ]
    return [encode_reply(request, {"markers": results})]


def _refusal(request: Request, broker: Broker) -> RequestError | None:
    access = broker.access
    if access.has(request, CLUSTER_ACTION):
        return None
    refusal = access.refusal(request, ALTER_CLUSTER)
    # Markers end other clients' transactions: that was allowed explicitly, also where ACLs are off or observed.
    if refusal is None and not (access.is_on and access.has(request, ALTER_CLUSTER)):
        refusal = access.denial(ALTER_CLUSTER)
    return refusal


def _begin(
    broker: Broker, asked: Any, refusal: RequestError | None
) -> dict[TopicPartition, Written]:
    """Write a marker to its partitions. Return for each the error, or the future that is done when it is committed."""
    marker = EndTransactionMarker(
        producer_id=asked.producer_id,
        producer_epoch=asked.producer_epoch,
        coordinator_epoch=asked.coordinator_epoch,
        is_commit=asked.transaction_result,
    )
    version = getattr(asked, "transaction_version", TransactionVersion.V0)
    written: dict[TopicPartition, Written] = {}
    for topic in asked.topics:
        for number in topic.partition_indexes:
            name = TopicPartition(topic.name, number)
            if name in written:
                continue
            if refusal is not None:
                written[name] = refusal
                continue
            try:
                _check(marker)
                written[name] = broker.markers.begin_to_write(
                    marker, name, needs_newer_epoch=version >= TransactionVersion.V2
                )
            except RequestError as error:
                written[name] = error
    return written


def _check(marker: EndTransactionMarker) -> None:
    if marker.producer_id < 0 or marker.producer_epoch < 0:
        raise InvalidRequest(
            f"there is no producer {marker.producer_id} with epoch {marker.producer_epoch}"
        )


def _topics(asked: Any, written: dict[TopicPartition, Written]) -> list[dict[str, Any]]:
    return [
        {
            "name": topic.name,
            "partitions": [
                {
                    "partition_index": number,
                    "error_code": _code(written[TopicPartition(topic.name, number)]),
                }
                for number in topic.partition_indexes
            ],
        }
        for topic in asked.topics
    ]


def _code(written: Written) -> int:
    error = _error(written) if isinstance(written, asyncio.Future) else written
    if isinstance(error, CoordinatorLoadInProgress | CoordinatorNotAvailable | NotCoordinator):
        # The partition belongs to `__consumer_offsets`. The sender of markers knows only partitions and their leaders.
        return NotLeader.code
    return 0 if error is None else error.code


def _error(written: "asyncio.Future[RequestError | None]") -> RequestError | None:
    if not written.done():
        return RequestTimedOut(f"not committed within {WAIT_S_MAX} s")
    return written.result()
