"""OffsetCommit (key 8): commit a group's offsets. Version 10 names topics by id: a recreated topic is noticed."""

from collections.abc import Iterable
from functools import partial

from respool.broker.broker import Broker
from respool.broker.coordinators.runtimes import CoordinatorRuntimes
from respool.broker.handlers.support.coordinator_requests import Encode, ask_coordinator
from respool.broker.handlers.support.offsets_to_commit import (
    Asked,
    codes_of,
    encode_codes,
    refuse_all,
    topics_to_commit,
)
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.rights import READ_GROUP, READ_TOPIC
from respool.broker.outcome import Outcome, Pipelined, Reply
from respool.coordination.groups.group_requests import (
    NO_MEMBER_ID,
    RETENTION_BY_BROKER,
    OffsetCommit,
    OffsetCommitReply,
)
from respool.model.errors import RequestError
from respool.wire.api_table import Api
from respool.wire.codec import Request
from respool.wire.shape import milliseconds

MEMBER_EPOCHS_VERSION = 9
TOPIC_IDS_VERSION = 10


@serves(Api.OFFSET_COMMIT, versions=(2, 10), rights=(READ_GROUP, READ_TOPIC))
def offset_commit(request: Request, broker: Broker) -> Outcome:
    by_id = request.version >= TOPIC_IDS_VERSION
    asked = Asked.of(request.body.topics, broker.image, by_id=by_id)
    access = broker.access
    if access.is_on:
        refusal = access.refusal(request, READ_GROUP, request.body.group_id)
        if refusal is not None:
            return refuse_all(request, asked, refusal)
        asked = [one.with_refusal(partial(access.refusal, request, READ_TOPIC)) for one in asked]
    question = _question(request, asked)

    def encode(answer: OffsetCommitReply | RequestError) -> Reply:
        if question.member_id == NO_MEMBER_ID and not isinstance(answer, RequestError):
            _log_commit(request, broker, question, answer)
        return encode_codes(request, asked, codes_of(question.topics, answer))

    if not question.topics:
        return encode_codes(request, asked, iter(()))
    runtimes = broker.groups.runtimes
    if question.member_id == NO_MEMBER_ID and runtimes.is_about_to_serve(question.group_id):
        return _commit_when_served(runtimes, question, encode)
    return ask_coordinator(runtimes, question.group_id, question, encode)


async def _commit_when_served(
    runtimes: CoordinatorRuntimes, question: OffsetCommit, encode: Encode
) -> Reply:
    """An administrator's commit: librdkafka does not retry it, and returns NOT_COORDINATOR to its user."""
    await runtimes.wait_until_served({question.group_id})
    outcome = ask_coordinator(runtimes, question.group_id, question, encode)
    return await outcome.wait() if isinstance(outcome, Pipelined) else outcome


def _log_commit(
    request: Request, broker: Broker, question: OffsetCommit, answer: OffsetCommitReply
) -> None:
    offsets = [
        f"{wanted.topic}-{one.partition}={one.offset}"
        for wanted, done in zip(question.topics, answer.topics, strict=True)
        for one, result in zip(wanted.partitions, done.partitions, strict=True)
        if result.error is None
    ]
    if offsets:
        broker.admin_log.log_commit(request, question.group_id, offsets)


def _question(request: Request, asked: Iterable[Asked]) -> OffsetCommit:
    body = request.body
    retention = getattr(body, "retention_time", None)
    return OffsetCommit(
        group_id=body.group_id,
        generation=body.generation_id_or_member_epoch,
        member_id=body.member_id,
        instance_id=getattr(body, "group_instance_id", None),
        topics=topics_to_commit(asked),
        retention_ms=RETENTION_BY_BROKER if retention is None else milliseconds(retention),
        knows_member_epochs=request.version >= MEMBER_EPOCHS_VERSION,
    )
