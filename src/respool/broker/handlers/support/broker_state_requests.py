"""Requests about the stored state of share partitions (keys 83 to 87), which only brokers may send.

Leaders of partitions and group coordinators send them to share coordinators on other brokers. They can rewrite any
group, so they are taken only from a broker that names the epoch with which it is registered.
"""

from respool.broker.broker import Broker
from respool.broker.coordinators.state_operations import StateOperation
from respool.broker.handlers.support.rights import CLUSTER_ACTION
from respool.broker.outcome import Reply
from respool.coordination.share.share_state import ShareKey
from respool.model.errors import InvalidRequest, RequestError
from respool.model.ids import ZERO_TOPIC_ID, BrokerId
from respool.model.security.security_errors import ClusterAuthorizationFailed
from respool.wire.codec import Request, encode_reply


async def carry_out_for_broker(
    request: Request, broker: Broker, operation: StateOperation
) -> Reply:
    body = request.body
    try:
        _check_sender(request, broker)
        values = operation.values(body)
    except RequestError as error:
        refused = {
            ShareKey(body.group_id, topic.topic_id or ZERO_TOPIC_ID, one.partition): error
            for topic in body.topics
            for one in topic.partitions
        }
        return [encode_reply(request, {"results": operation.results(body, refused)})]
    results = await broker.coordinators.shares.ask(values, operation.request)
    return [encode_reply(request, {"results": operation.results(body, results)})]


def _check_sender(request: Request, broker: Broker) -> None:
    body = request.body
    known = broker.image.brokers.get(BrokerId(body.sender_id))
    if (
        not broker.access.may(request, CLUSTER_ACTION)
        or broker.member is None
        or known is None
        or known.epoch != body.sender_epoch
    ):
        raise ClusterAuthorizationFailed(f"{request.api.name} is for brokers of this cluster only")
    if not body.group_id:
        raise InvalidRequest("the group id is empty")
