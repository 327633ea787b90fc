"""ShareFetch (key 78): acknowledge what a member of a share group has handled, and acquire records for it."""

import asyncio
from typing import Any

from respool.broker.broker import Broker
from respool.broker.handlers.support.leadership import endpoints_of, leader_hint
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.rights import READ_GROUP, READ_TOPIC
from respool.broker.outcome import Outcome, Reply
from respool.broker.share.member_acknowledgements import (
    Acknowledgements,
    RefusalOf,
    session_key,
    targets_of,
)
from respool.broker.share.share_fetch_run import (
    ShareFetchAnswer,
    ShareFetchLimits,
    ShareFetchRun,
)
from respool.broker.share.share_sessions import (
    CLOSING_EPOCH,
    OPENING_EPOCH,
    SessionKey,
    ShareSession,
    ShareTarget,
)
from respool.coordination.share.acquisition import AcquireMode
from respool.model.errors import InvalidRequest, RequestError
from respool.model.ids import ZERO_TOPIC_ID, TopicId
from respool.model.share.share_errors import ShareSessionLimitReached
from respool.wire.api_table import Api
from respool.wire.codec import Request
from respool.wire.share_fetch_reply import SharedPartition, encode_share_fetch_reply


@serves(Api.SHARE_FETCH, versions=(1, 2), rights=(READ_GROUP, READ_TOPIC))
def share_fetch(request: Request, broker: Broker) -> Outcome:
    request.waits_for_others = True
    return _answer(request, broker)


async def _answer(request: Request, broker: Broker) -> Reply:
    body = request.body
    try:
        key = session_key(body)
        broker.access.check(request, READ_GROUP, key.group)
        batches = targets_of(body.topics)
        session = _session(request, broker, key, batches)
        limits = _limits(body)
    except ShareSessionLimitReached as error:
        # The client asks again at once.
        await asyncio.sleep(max(0.0, body.max_wait.total_seconds()))
        return _refused(request, error)
    except RequestError as error:
        return _refused(request, error)
    new = broker.shares.sessions.change(session, added=batches)
    refusal_of = topic_refusals(request, broker)
    acknowledgements = Acknowledgements()
    await acknowledgements.apply(
        broker.shares,
        key,
        batches,
        refusal_of=refusal_of,
        is_renewing=getattr(body, "is_renew_ack", False),
        now_ms=broker.steady_clock.now_ms(),
    )
    broker.shares.sessions.change(session, added=(), forgotten=_forgotten(body))
    if body.share_session_epoch == CLOSING_EPOCH:
        broker.shares.sessions.close(session)
        limits.records_max = 0
    if limits.wants_records:
        # Over its quota, the member gets no records; what it acknowledges counts (KIP-219).
        limits.bytes_max = broker.quotas.fetch_room(request, limits.bytes_max)
    answer = await ShareFetchRun(broker, session, limits, refusal_of=refusal_of).run(
        acknowledgements
    )
    return _encode(request, broker, answer, acknowledgements, key=key, new=new)


def _session(
    request: Request, broker: Broker, key: SessionKey, batches: dict[ShareTarget, list[Any]]
) -> ShareSession:
    """
    Raises:
        InvalidRequest, ShareSessionNotFound, InvalidShareSessionEpoch, ShareSessionLimitReached: the request is not
            executed.
    """
    sessions, epoch = broker.shares.sessions, request.body.share_session_epoch
    if epoch == OPENING_EPOCH:
        if any(batches.values()):
            raise InvalidRequest("a request that opens a share session acknowledges nothing")
        return sessions.open(key, request.connection)
    session = sessions.find(key, request.connection, epoch)
    sessions.advance(session)
    return session


def _limits(body: Any) -> ShareFetchLimits:
    """
    Raises:
        InvalidRequest: the fields contradict each other.
    """
    wait_s = body.max_wait.total_seconds()
    if getattr(body, "is_renew_ack", False) and (
        wait_s or body.min_bytes or body.max_bytes or body.max_records
    ):
        raise InvalidRequest("a request that renews fetches nothing: its limits must be 0")
    mode = getattr(body, "share_acquire_mode", AcquireMode.BATCH_OPTIMIZED)
    if mode not in set(AcquireMode):
        raise InvalidRequest(f"there is no acquire mode {mode}")
    return ShareFetchLimits(
        wait_max_s=max(0.0, wait_s),
        bytes_min=body.min_bytes,
        bytes_max=body.max_bytes,
        records_max=body.max_records,
        batch_size=max(1, body.batch_size),
        mode=AcquireMode(mode),
    )


def topic_refusals(request: Request, broker: Broker) -> RefusalOf:
    """Which topics the client may not read. That an id exists is no secret."""

    def refusal_of(target: ShareTarget) -> RequestError | None:
        if not broker.access.is_on:
            return None
        topic = broker.image.readable_by_id(target.topic_id)
        return None if topic is None else broker.access.refusal(request, READ_TOPIC, topic.name)

    return refusal_of


def _forgotten(body: Any) -> list[ShareTarget]:
    return [
        ShareTarget(TopicId(topic.topic_id or ZERO_TOPIC_ID), partition)
        for topic in body.forgotten_topics_data
        for partition in topic.partitions
    ]


def _encode(
    request: Request,
    broker: Broker,
    answer: ShareFetchAnswer,
    acknowledgements: Acknowledgements,
    *,
    key: SessionKey,
    new: list[ShareTarget],
) -> Reply:
    """Name every partition that has acknowledgements, records or an error, or is new in the session."""
    targets = dict.fromkeys([*acknowledgements.results, *answer.records, *answer.errors, *new])
    topics: dict[TopicId, list[SharedPartition]] = {}
    hints = []
    for target in targets:
        error = answer.errors.get(target)
        result = acknowledgements.results.get(target)
        refused = None if result is None else result.error
        hint = hint_of(broker, target, error or refused)
        hints.append(hint)
        taken = answer.records.get(target)
        topics.setdefault(target.topic_id, []).append(
            SharedPartition(
                target.partition,
                error_code=0 if error is None else error.code,
                error_message=None if error is None else str(error),
                acknowledge_error_code=0 if refused is None else refused.code,
                acknowledge_error_message=None if refused is None else str(refused),
                current_leader=hint or (0, 0),
                records=() if taken is None else taken.buffers,
                record_bytes=0 if taken is None else taken.size,
                acquired=() if taken is None else taken.acquired,
            )
        )
    reply = encode_share_fetch_reply(
        request.correlation_id,
        list(topics.items()),
        throttle_ms=request.throttle_ms,
        lock_duration_ms=broker.shares.settings_of(key.group).lock_duration_ms,
        node_endpoints=endpoints_of(broker.image, hints, request.session),
    )
    broker.quotas.on_fetched(request.session, sum(map(len, reply)))
    return reply


def hint_of(
    broker: Broker, target: ShareTarget, error: RequestError | None
) -> tuple[int, int] | None:
    """The partition's leader, if the error is that this broker is not."""
    topic = broker.image.readable_by_id(target.topic_id)
    if error is None or topic is None:
        return None
    return leader_hint(broker.image, broker.id, topic.name, target.partition, error.code)


def _refused(request: Request, error: RequestError) -> Reply:
    return encode_share_fetch_reply(
        request.correlation_id,
        [],
        throttle_ms=request.throttle_ms,
        lock_duration_ms=0,
        error_code=error.code,
        error_message=str(error),
    )
