"""ShareAcknowledge (key 79): acknowledge without fetching; it may close the share session, and opens none."""

from typing import Any

from respool.broker.broker import Broker
from respool.broker.handlers.share_groups.share_fetch import hint_of, topic_refusals
from respool.broker.handlers.support.leadership import endpoints_of
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.rights import READ_GROUP, READ_TOPIC
from respool.broker.outcome import Outcome, Reply
from respool.broker.share.member_acknowledgements import Acknowledgements, session_key, targets_of
from respool.broker.share.share_sessions import CLOSING_EPOCH, OPENING_EPOCH
from respool.model.errors import RequestError
from respool.model.ids import TopicId
from respool.model.share.share_errors import InvalidShareSessionEpoch
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply


@serves(Api.SHARE_ACKNOWLEDGE, versions=(1, 2), rights=(READ_GROUP, READ_TOPIC))
def share_acknowledge(request: Request, broker: Broker) -> Outcome:
    request.waits_for_others = True
    return _answer(request, broker)


async def _answer(request: Request, broker: Broker) -> Reply:
    body, sessions = request.body, broker.shares.sessions
    try:
        key = session_key(body)
        broker.access.check(request, READ_GROUP, key.group)
        batches = targets_of(body.topics)
        if body.share_session_epoch == OPENING_EPOCH:
            raise InvalidShareSessionEpoch("only ShareFetch opens a share session")
        session = sessions.find(key, request.connection, body.share_session_epoch)
    except RequestError as error:
        return [encode_reply(request, _fields(error.code, str(error), 0))]
    sessions.advance(session)
    acknowledgements = Acknowledgements()
    await acknowledgements.apply(
        broker.shares,
        key,
        batches,
        refusal_of=topic_refusals(request, broker),
        is_renewing=getattr(body, "is_renew_ack", False),
        now_ms=broker.steady_clock.now_ms(),
    )
    if body.share_session_epoch == CLOSING_EPOCH:
        sessions.close(session)
    await acknowledgements.committed()
    topics: dict[TopicId, list[dict[str, Any]]] = {}
    hints = []
    for target, result in acknowledgements.results.items():
        error_of = result.error
        hint = hint_of(broker, target, error_of)
        hints.append(hint)
        leader, leader_epoch = hint or (0, 0)
        topics.setdefault(target.topic_id, []).append(
            {
                "partition_index": target.partition,
                "error_code": 0 if error_of is None else error_of.code,
                "error_message": None if error_of is None else str(error_of),
                "current_leader": {"leader_id": leader, "leader_epoch": leader_epoch},
            }
        )
    fields = _fields(0, None, broker.shares.settings_of(key.group).lock_duration_ms)
    fields["responses"] = [
        {"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in topics.items()
    ]
    fields["node_endpoints"] = [
        one._asdict() for one in endpoints_of(broker.image, hints, request.session)
    ]
    return [encode_reply(request, fields)]


def _fields(error_code: int, message: str | None, lock_duration_ms: int) -> dict[str, Any]:
    return {
        "throttle_time": 0,
        "error_code": error_code,
        "error_message": message,
        "acquisition_lock_timeout": lock_duration_ms,
        "responses": [],
        "node_endpoints": [],
    }
