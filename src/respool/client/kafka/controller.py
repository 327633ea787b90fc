"""Requests to the controller that change the cluster; repeated only if they were certainly not carried out."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import Code, refused
from respool.client.kafka.errors import BrokerRefused, BrokerUnreachable, ConnectionLost
from respool.wire.api_table import Api

# How long a broker may take to carry out such a request.
REQUEST_MS = 30_000


def request_controller(
    cluster: Cluster,
    api: Api,
    fields: Mapping[str, Any],
    *,
    doing: str,
    answers_of: Callable[[Any], Sequence[Any]],
    broker: int | None = None,
) -> Any:
    """Send it to `broker`, by default to the controller named in the metadata. Raises the first error in the answers.

    Raises:
        BrokerRefused: with Kafka's code and the broker's message.
        ConnectionLost: no reply came; the broker may have carried it out.
        BrokerUnreachable: no broker could be connected to within the cluster's `retry_ms`.
    """
    retry = cluster.retry_timer()
    while True:
        try:
            asked = _controller(cluster) if broker is None else broker
            reply = cluster.request(asked, api, fields, wait_ms=REQUEST_MS)
            for one in answers_of(reply):
                check_answer(doing, one)
        except ConnectionLost:
            raise
        except BrokerUnreachable as error:
            retry.wait_or_raise(error)
        except BrokerRefused as error:
            if error.code != Code.not_controller:
                raise
            retry.wait_or_raise(error)
        else:
            return reply
        _refresh_quietly(cluster)


def check_answer(doing: str, answer: Any) -> None:
    """
    Raises:
        BrokerRefused: the answer has an error code.
    """
    refusal = refusal_of(doing, answer)
    if refusal is not None:
        raise refusal


def refusal_of(doing: str, answer: Any) -> BrokerRefused | None:
    if not answer.error_code:
        return None
    return refused(doing, answer.error_code, getattr(answer, "error_message", None))


def _controller(cluster: Cluster) -> int:
    """Brokers that hide their controller, such as Kafka's with KRaft, name any broker and forward requests."""
    controller = cluster.controller
    if controller is None or controller not in cluster.brokers:
        brokers = cluster.refresh_brokers()
        controller = cluster.controller
        if controller is None or controller not in brokers:
            return min(brokers)
    return controller


def _refresh_quietly(cluster: Cluster) -> None:
    try:
        cluster.refresh_brokers()
    except BrokerUnreachable:
        # The next attempt then fails as well, and the retry limit applies.
        return
