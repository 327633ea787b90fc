"""TxnOffsetCommit (key 28): commit a group's offsets as part of a transaction.

The group's partition of `__consumer_offsets` must be part of the transaction: by AddOffsetsToTxn, or from version 5 on
by this request itself (KIP-890). The generation in the request fences members of older generations (KIP-447).
"""

from functools import partial

from respool.broker.broker import Broker
from respool.broker.coordinators.remote_coordinators import TransactionalProducer
from respool.broker.coordinators.runtime import CoordinatorRuntime
from respool.broker.handlers.support.client_errors import is_transient, to_offset_committer
from respool.broker.handlers.support.offsets_to_commit import (
    Asked,
    codes_of,
    encode_codes,
    refuse_all,
    topics_to_commit,
)
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.rights import READ_GROUP, READ_TOPIC, WRITE_TRANSACTIONAL_ID
from respool.broker.handlers.support.transactional_produce import ASKED_MAX
from respool.broker.outcome import Reply
from respool.coordination.decision import RecordsProducer
from respool.coordination.groups.group_requests import (
    NO_GENERATION,
    OffsetCommitReply,
    TxnOffsetCommit,
)
from respool.coordination.transactions.transaction_requests import TransactionVersion
from respool.log.partition_log import VerificationGuard
from respool.model.coordinator_errors import CoordinatorLoadInProgress
from respool.model.errors import RequestError
from respool.model.ids import TopicPartition
from respool.wire.api_table import Api
from respool.wire.codec import Request

IMPLICIT_ADD_VERSION = 5
# Topics have ids instead of names, and clients know the errors of member epochs (KIP-1319).
TOPIC_IDS_VERSION = 6


@serves(
    Api.TXN_OFFSET_COMMIT, versions=(0, 6), rights=(WRITE_TRANSACTIONAL_ID, READ_GROUP, READ_TOPIC)
)
async def txn_offset_commit(request: Request, broker: Broker) -> Reply:
    body = request.body
    asked = Asked.of(body.topics, broker.image, by_id=request.version >= TOPIC_IDS_VERSION)
    access = broker.access
    if access.is_on:
        refusal = access.refusal(
            request, WRITE_TRANSACTIONAL_ID, body.transactional_id
        ) or access.refusal(request, READ_GROUP, body.group_id)
        if refusal is not None:
            return refuse_all(request, asked, refusal)
        asked = [one.with_refusal(partial(access.refusal, request, READ_TOPIC)) for one in asked]
    question = TxnOffsetCommit(
        group_id=body.group_id,
        producer_id=body.producer_id,
        producer_epoch=body.producer_epoch,
        generation=getattr(body, "generation_id", NO_GENERATION),
        member_id=getattr(body, "member_id", ""),
        instance_id=getattr(body, "group_instance_id", None),
        topics=topics_to_commit(asked),
        knows_member_epochs=request.version >= TOPIC_IDS_VERSION,
    )
    if not question.topics:
        return encode_codes(request, asked, iter(()))
    answer: OffsetCommitReply | RequestError
    try:
        answer = await _commit(request, broker, question)
    except RequestError as error:
        answer = to_offset_committer(error, version=request.version)
    return encode_codes(request, asked, codes_of(question.topics, answer))


async def _commit(request: Request, broker: Broker, question: TxnOffsetCommit) -> OffsetCommitReply:
    runtime = broker.groups.runtimes.runtime_of(question.group_id)
    guard = await _verified_guard(runtime, request, broker, question)
    reply: OffsetCommitReply = await runtime.ask(question, guard=guard)
    return reply


async def _verified_guard(
    runtime: CoordinatorRuntime, request: Request, broker: Broker, question: TxnOffsetCommit
) -> VerificationGuard | None:
    """Return a guard that the coordinator has verified; None if the transaction has already begun in this partition."""
    producer = RecordsProducer(
        producer_id=question.producer_id, producer_epoch=question.producer_epoch
    )
    guard = runtime.begin_verification(producer)
    if guard is None:
        return None
    for _ in range(ASKED_MAX):
        try:
            await _verify(request, broker, question)
        except RequestError as error:
            if not is_transient(error):
                runtime.cancel_verification(guard)
            raise
        if request.version < IMPLICIT_ADD_VERSION:
            return guard
        # As with Produce, the wait for the previous transaction may have made the guard void.
        current = runtime.begin_verification(producer)
        if current is guard:
            # `begin_verification` counted this request twice.
            runtime.cancel_verification(guard)
        if current is None or current is guard:
            return current
        guard = current
    # The last guard was never verified. For this code clients retry.
    raise CoordinatorLoadInProgress("the transaction's verification was void whenever it came")


async def _verify(request: Request, broker: Broker, question: TxnOffsetCommit) -> None:
    """Raises:
    RequestError: the group's offsets are not part of the transaction.
    """
    offsets = broker.groups.runtimes
    name = TopicPartition(offsets.topic, offsets.partition_of(question.group_id))
    is_implicit = request.version >= IMPLICIT_ADD_VERSION
    errors = await broker.transactions.admit_writes(
        TransactionalProducer(
            transactional_id=request.body.transactional_id,
            producer_id=question.producer_id,
            producer_epoch=question.producer_epoch,
        ),
        [name],
        version=TransactionVersion.V2 if is_implicit else TransactionVersion.V1,
    )
    error = errors[name]
    if error is not None and is_transient(error):
        # The error came from the transaction coordinator. In this reply, a client would take it for the group
        # coordinator's and look that up again, or fail.
        raise CoordinatorLoadInProgress(f"the transaction cannot be verified now: {error.message}")
    if error is not None:
        raise error
