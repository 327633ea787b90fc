"""DeleteShareGroupOffsets (key 92): forget the state of whole topics of an empty share group."""

from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_fields
from respool.broker.handlers.support.rights import DELETE_GROUP, READ_TOPIC
from respool.broker.outcome import Reply
from respool.coordination.groups.share.share_group_requests import (
    DeleteShareStates,
    FindShareStates,
    FindShareStatesReply,
    ShareStatesChanged,
)
from respool.model.errors import RequestError, UnknownTopicOrPartition
from respool.model.ids import ZERO_TOPIC_ID, TopicId
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply


@serves(Api.DELETE_SHARE_GROUP_OFFSETS, versions=(0, 0), rights=(DELETE_GROUP, READ_TOPIC))
async def delete_share_group_offsets(request: Request, broker: Broker) -> Reply:
    body = request.body
    names = dict.fromkeys(topic.topic_name for topic in body.topics)
    refusals = {name: broker.access.refusal(request, READ_TOPIC, name) for name in names}
    ids = {name: _topic_id(broker, name) for name in names}
    allowed = frozenset(ids[name] for name in names if refusals[name] is None)
    error: RequestError | None = None
    known: frozenset[TopicId] = frozenset()
    try:
        broker.access.check(request, DELETE_GROUP, body.group_id)
        known, error = await _delete(broker, body.group_id, allowed)
    except RequestError as refusal:
        error = refusal
    if error is None and known:
        broker.admin_log.log(request, f"deleted offsets of share group {body.group_id!r}")

    def error_of(name: str) -> RequestError | None:
        if refusals[name] is not None or ids[name] in known:
            return refusals[name]
        return UnknownTopicOrPartition(f"group {body.group_id} has no offsets of topic {name}")

    fields = {
        "throttle_time": 0,
        **error_fields(error),
        "responses": []
        if error is not None
        else [
            {"topic_name": name, "topic_id": ids[name], **error_fields(error_of(name))}
            for name in names
        ],
    }
    return [encode_reply(request, fields)]


async def _delete(
    broker: Broker, group_id: str, topic_ids: frozenset[TopicId]
) -> tuple[frozenset[TopicId], RequestError | None]:
    """The topics of which the group had offsets, and why they could not be deleted."""
    found: FindShareStatesReply = await broker.groups.ask(
        group_id, FindShareStates(group_id=group_id)
    )
    if found.error is not None:
        return frozenset(), found.error
    known = topic_ids & found.initialized.keys()
    reply: ShareStatesChanged = await broker.groups.ask(
        group_id, DeleteShareStates(group_id=group_id, topic_ids=known)
    )
    return known, reply.error


def _topic_id(broker: Broker, name: str) -> TopicId:
    topic = broker.image.readable(name)
    return ZERO_TOPIC_ID if topic is None else topic.id
