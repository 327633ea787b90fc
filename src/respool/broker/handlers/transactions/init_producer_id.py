"""InitProducerId (key 22): allocates a producer id, by which retries are recognised and older instances fenced.

An idempotent producer gets a new id with epoch 0 for each request, as from Kafka. A transactional producer keeps the id
of its transactional id and gets the next epoch; the open transaction of an older instance is aborted first. From
version 3 on the request may carry the current id and epoch (KIP-360), to recover after an error; both or neither.
"""

from respool.broker.broker import Broker
from respool.broker.handlers.support.client_errors import for_version
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_code
from respool.broker.handlers.support.rights import (
    IDEMPOTENT_WRITE,
    WRITE_TOPIC,
    WRITE_TRANSACTIONAL_ID,
)
from respool.broker.outcome import Reply
from respool.coordination.transactions.transaction_requests import (
    NO_PRODUCER_EPOCH,
    InitProducerId,
    InitProducerIdReply,
)
from respool.model.errors import InvalidRequest, RequestError
from respool.model.ids import NO_PRODUCER_ID
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply
from respool.wire.shape import milliseconds

FIRST_EPOCH = 0
FENCED_CODE_VERSION = 4


@serves(
    Api.INIT_PRODUCER_ID,
    versions=(0, 5),
    rights=(
        WRITE_TRANSACTIONAL_ID.when("it has a transactional id"),
        IDEMPOTENT_WRITE.when("it has none") | WRITE_TOPIC.when("it has none, and any topic"),
    ),
)
async def init_producer_id(request: Request, broker: Broker) -> Reply:
    try:
        answer = await _answer(request, broker)
    except RequestError as error:
        answer = InitProducerIdReply(error=error)
    fields = {
        "throttle_time": 0,
        "error_code": error_code(
            for_version(answer.error, request, fenced_code_from=FENCED_CODE_VERSION)
        ),
        "producer_id": answer.producer_id,
        "producer_epoch": answer.producer_epoch,
    }
    return [encode_reply(request, fields)]


async def _answer(request: Request, broker: Broker) -> InitProducerIdReply:
    body, access = request.body, broker.access
    if body.transactional_id is not None:
        access.check(request, WRITE_TRANSACTIONAL_ID, body.transactional_id)
    elif not access.has(request, IDEMPOTENT_WRITE) and not access.has_any(request, WRITE_TOPIC):
        access.check(request, IDEMPOTENT_WRITE)
    producer_id = getattr(body, "producer_id", NO_PRODUCER_ID)
    producer_epoch = getattr(body, "producer_epoch", NO_PRODUCER_EPOCH)
    if (producer_id == NO_PRODUCER_ID) != (producer_epoch == NO_PRODUCER_EPOCH):
        raise InvalidRequest(
            f"producer id {producer_id} with epoch {producer_epoch}: give both or neither"
        )
    if body.transactional_id is None:
        return await _new_producer(broker)
    if not body.transactional_id:
        raise InvalidRequest("the transactional id is empty")
    reply: InitProducerIdReply = await broker.transactions.ask(
        body.transactional_id,
        InitProducerId(
            transactional_id=body.transactional_id,
            timeout_ms=milliseconds(body.transaction_timeout),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        ),
    )
    return reply


async def _new_producer(broker: Broker) -> InitProducerIdReply:
    producer_id = await broker.producer_ids.next()
    return InitProducerIdReply(producer_id=producer_id, producer_epoch=FIRST_EPOCH)
