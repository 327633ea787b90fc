"""ListTransactions (key 66): the transactional ids, optionally filtered by state, producer, age or name."""

from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_code
from respool.broker.handlers.support.rights import DESCRIBE_TRANSACTIONAL_ID
from respool.broker.outcome import Reply
from respool.coordination.transactions.transaction_requests import (
    ListTransactions,
    ListTransactionsReply,
)
from respool.model.errors import RequestError
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply


@serves(Api.LIST_TRANSACTIONS, versions=(0, 2), rights=(DESCRIBE_TRANSACTIONAL_ID,))
async def list_transactions(request: Request, broker: Broker) -> Reply:
    body = request.body
    question = ListTransactions(
        states=frozenset(body.state_filters),
        producer_ids=frozenset(body.producer_id_filters),
        duration_ms_min=getattr(body, "duration_filter", -1),
        id_pattern=getattr(body, "transactional_id_pattern", None),
    )
    replies: list[ListTransactionsReply]
    try:
        replies = await broker.transactions.runtimes.ask_all(question)
    except RequestError as error:
        replies = [ListTransactionsReply(error=error)]
    failed = next((one.error for one in replies if one.error is not None), None)
    sees = broker.access.sees
    listed = [
        one
        for reply in replies
        for one in reply.transactions
        if not failed and sees(request, DESCRIBE_TRANSACTIONAL_ID, one.transactional_id)
    ]
    fields = {
        "throttle_time": 0,
        "error_code": error_code(failed),
        "unknown_state_filters": replies[0].unknown_states if replies else (),
        "transaction_states": [
            {
                "transactional_id": one.transactional_id,
                "producer_id": one.producer_id,
                "transaction_state": one.state.kafka_name,
            }
            for one in listed
        ],
    }
    return [encode_reply(request, fields)]
