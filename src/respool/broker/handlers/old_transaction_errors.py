"""Errors of transactions in words that older clients understand.

PRODUCER_FENCED came with KIP-588. To clients before that, INVALID_PRODUCER_EPOCH means the same.
"""

from respool.model.errors import InvalidProducerEpoch, ProducerFenced, RequestError
from respool.wire.codec import Request


def for_version(
    error: RequestError | None, request: Request, *, fenced_code_from: int
) -> RequestError | None:
    if isinstance(error, ProducerFenced) and request.version < fenced_code_from:
        return InvalidProducerEpoch(error.message)
    return error
