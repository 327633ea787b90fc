"""InitProducerId (key 22): an id under which a producer's retries are recognised.

An idempotent producer gets a new id with epoch 0 whenever it asks, as from Kafka. From version 3 on it may say which id
and epoch it had (KIP-360): that matters to transactional producers only, but both or neither must be given.
"""

from respool.broker.broker import Broker
from respool.broker.outcome import Reply
from respool.model.errors import (
    InvalidRequest,
    RequestError,
    RequestTimedOut,
    UnsupportedVersion,
)
from respool.model.ids import NO_PRODUCER_ID, ProducerId
from respool.ports.metadata_store import StoreUnavailable
from respool.wire.codec import Request, encode_reply

NO_PRODUCER_EPOCH = -1
FIRST_EPOCH = 0


async def init_producer_id(request: Request, broker: Broker) -> Reply:
    try:
        _check(request)
        producer_id = await broker.producer_ids.next()
    except RequestError as error:
        return _reply(request, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, error_code=error.code)
    except StoreUnavailable:
        # The client may try again: an id that was claimed in vain is never given out.
        return _reply(request, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, error_code=RequestTimedOut.code)
    return _reply(request, producer_id, FIRST_EPOCH)


def _check(request: Request) -> None:
    body = request.body
    producer_id = getattr(body, "producer_id", NO_PRODUCER_ID)
    producer_epoch = getattr(body, "producer_epoch", NO_PRODUCER_EPOCH)
    if (producer_id == NO_PRODUCER_ID) != (producer_epoch == NO_PRODUCER_EPOCH):
        raise InvalidRequest(
            f"producer id {producer_id} with epoch {producer_epoch}: give both or neither"
        )
    if body.transactional_id is None:
        return
    if not body.transactional_id:
        raise InvalidRequest("the transactional id is empty")
    # There are no transactions here, and FindCoordinator has told the client so. One that comes here all the same takes
    # a code it does not expect for final and stops at once; NOT_COORDINATOR and its like it would retry for ever.
    raise UnsupportedVersion("this broker has no transactions")


def _reply(
    request: Request, producer_id: ProducerId, producer_epoch: int, *, error_code: int = 0
) -> Reply:
    fields = {
        "throttle_time": 0,
        "error_code": error_code,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
    }
    return [encode_reply(request, fields)]
