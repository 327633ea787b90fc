"""AddOffsetsToTxn (key 25): a transaction is going to commit offsets of this group.

It adds to the transaction the partition of `__consumer_offsets` that stores the group's offsets.
"""

from respool.broker.broker import Broker
from respool.broker.handlers.support.client_errors import for_version
from respool.broker.handlers.support.coordinator_requests import ask_coordinator
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_code
from respool.broker.handlers.support.rights import READ_GROUP, WRITE_TRANSACTIONAL_ID
from respool.broker.outcome import Outcome, Pipelined, Reply
from respool.coordination.transactions.transaction_requests import (
    AddPartitions,
    AddPartitionsReply,
    TransactionVersion,
)
from respool.model.coordinator_errors import CoordinatorNotAvailable
from respool.model.errors import RequestError
from respool.model.ids import TopicPartition
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply

FENCED_CODE_VERSION = 2


@serves(Api.ADD_OFFSETS_TO_TXN, versions=(0, 4), rights=(WRITE_TRANSACTIONAL_ID, READ_GROUP))
def add_offsets_to_txn(request: Request, broker: Broker) -> Outcome:
    body, access = request.body, broker.access
    refusal = access.refusal(
        request, WRITE_TRANSACTIONAL_ID, body.transactional_id
    ) or access.refusal(request, READ_GROUP, body.group_id)
    if refusal is not None:
        return _reply(request, refusal)
    # A group may commit offsets without ever having had a coordinator: its consumers may read without being members.
    if not broker.groups.runtimes.has_topic:
        return _with_offsets_topic(request, broker)
    return _add(request, broker)


async def _with_offsets_topic(request: Request, broker: Broker) -> Reply:
    try:
        await broker.groups.runtimes.ensure_topic()
    except RequestError as error:
        return _reply(request, CoordinatorNotAvailable(f"the topic for groups: {error}"))
    outcome = _add(request, broker)
    return await outcome.wait() if isinstance(outcome, Pipelined) else outcome


def _add(request: Request, broker: Broker) -> Reply | Pipelined:
    body, offsets = request.body, broker.groups.runtimes

    def encode(answer: AddPartitionsReply | RequestError) -> Reply:
        return _reply(request, answer if isinstance(answer, RequestError) else answer.error)

    question = AddPartitions(
        transactional_id=body.transactional_id,
        producer_id=body.producer_id,
        producer_epoch=body.producer_epoch,
        partitions=(TopicPartition(offsets.topic, offsets.partition_of(body.group_id)),),
        version=TransactionVersion.V1,
    )
    return ask_coordinator(
        broker.transactions.runtimes, question.transactional_id, question, encode
    )


def _reply(request: Request, error: RequestError | None) -> Reply:
    error = for_version(error, request, fenced_code_from=FENCED_CODE_VERSION)
    return [encode_reply(request, {"throttle_time": 0, "error_code": error_code(error)})]
