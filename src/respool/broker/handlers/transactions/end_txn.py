"""EndTxn (key 26): commit or abort a transaction.

The reply is sent when the decision is committed: from then on it cannot change, and markers go out soon. From version 5
on the producer continues with the epoch in the reply (KIP-890): batches of the old epoch are fenced if they come late.
"""

from respool.broker.broker import Broker
from respool.broker.handlers.support.client_errors import for_version
from respool.broker.handlers.support.coordinator_requests import ask_coordinator
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_code
from respool.broker.handlers.support.rights import WRITE_TRANSACTIONAL_ID
from respool.broker.outcome import Outcome, Reply
from respool.coordination.transactions.transaction_requests import (
    EndTransaction,
    EndTransactionReply,
    TransactionVersion,
)
from respool.model.errors import RequestError
from respool.wire.api_table import Api
from respool.wire.codec import ReplyTemplates, Request, encode_reply

EPOCH_BUMP_VERSION = 5
FENCED_CODE_VERSION = 2


@serves(Api.END_TXN, versions=(0, 5), rights=(WRITE_TRANSACTIONAL_ID,))
def end_txn(request: Request, broker: Broker) -> Outcome:
    body = request.body
    refusal = broker.access.refusal(request, WRITE_TRANSACTIONAL_ID, body.transactional_id)
    if refusal is not None:
        return _reply(request, refusal)
    has_epoch_bump = request.version >= EPOCH_BUMP_VERSION
    question = EndTransaction(
        transactional_id=body.transactional_id,
        producer_id=body.producer_id,
        producer_epoch=body.producer_epoch,
        is_commit=body.committed,
        version=TransactionVersion.V2 if has_epoch_bump else TransactionVersion.V1,
    )
    if has_epoch_bump:
        return _end(request, broker, question)
    return ask_coordinator(
        broker.transactions.runtimes,
        question.transactional_id,
        question,
        lambda answer: _reply(request, answer),
    )


async def _end(request: Request, broker: Broker, question: EndTransaction) -> Reply:
    """End the transaction; if its producer epoch is exhausted, allocate a new producer id first."""
    try:
        answer = await broker.transactions.ask(question.transactional_id, question)
    except RequestError as error:
        answer = error
    return _reply(request, answer)


def _reply(request: Request, answer: EndTransactionReply | RequestError) -> Reply:
    if isinstance(answer, RequestError):
        answer = EndTransactionReply(error=answer)
    error = for_version(answer.error, request, fenced_code_from=FENCED_CODE_VERSION)
    fields = {
        "throttle_time": 0,
        "error_code": error_code(error),
        "producer_id": answer.producer_id,
        "producer_epoch": answer.producer_epoch,
    }
    if error is None and request.version < EPOCH_BUMP_VERSION:
        return [_TEMPLATES.encode(request, None, lambda: fields)]
    return [encode_reply(request, fields)]


_TEMPLATES = ReplyTemplates()
