"""WriteTxnMarkers (key 27): end transactions in these partitions.

Coordinators send it to the leaders of partitions; an operator sends it to end a transaction that hangs, because its
coordinator has forgotten it (`respool transaction abort`, Kafka's `kafka-transactions.sh abort`).
"""

import asyncio
from typing import Any

from respool.broker.broker import Broker
from respool.broker.outcome import Reply
from respool.model.errors import InvalidRequest, RequestError
from respool.model.ids import TopicPartition
from respool.records.markers import EndTransactionMarker
from respool.wire.codec import Request, encode_reply


async def write_txn_markers(request: Request, broker: Broker) -> Reply:
    results = await asyncio.gather(*(_write(broker, one) for one in request.body.markers))
    return [encode_reply(request, {"markers": results})]


async def _write(broker: Broker, asked: Any) -> dict[str, Any]:
    marker = EndTransactionMarker(
        producer_id=asked.producer_id,
        producer_epoch=asked.producer_epoch,
        coordinator_epoch=asked.coordinator_epoch,
        is_commit=asked.transaction_result,
    )

    async def code_of(topic: str, number: int) -> dict[str, int]:
        try:
            _check(marker)
            await broker.markers.write_once(marker, TopicPartition(topic, number))
        except RequestError as error:
            return {"partition_index": number, "error_code": error.code}
        return {"partition_index": number, "error_code": 0}

    topics = [
        {
            "name": topic.name,
            "partitions": await asyncio.gather(
                *(code_of(topic.name, number) for number in topic.partition_indexes)
            ),
        }
        for topic in asked.topics
    ]
    return {"producer_id": asked.producer_id, "topics": topics}


def _check(marker: EndTransactionMarker) -> None:
    if marker.producer_id < 0 or marker.producer_epoch < 0:
        raise InvalidRequest(
            f"there is no producer {marker.producer_id} with epoch {marker.producer_epoch}"
        )
