"""DescribeCluster (key 60): the brokers of the cluster and its controller.

Brokers that are not running are what Kafka calls fenced. They are listed if the request asks for fenced brokers, but
without an address, since their next address is unknown.
"""

from collections.abc import Iterator

from respool.broker.broker import Broker
from respool.broker.handlers.support.cluster_operations import cluster_operations_of
from respool.broker.handlers.support.listener_addresses import reached_brokers
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_fields
from respool.broker.handlers.support.rights import NOT_ASKED
from respool.broker.outcome import Reply
from respool.model.errors import MismatchedEndpointType, RequestError, UnsupportedEndpointType
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply

BROKERS = 1
CONTROLLERS = 2
NO_PORT = -1


@serves(Api.DESCRIBE_CLUSTER, versions=(0, 2), rights=())
def describe_cluster(request: Request, broker: Broker) -> Reply:
    image = broker.image
    fields = {
        "throttle_time": 0,
        "endpoint_type": BROKERS,
        "cluster_id": image.cluster_id,
    }
    try:
        _check_endpoint_type(getattr(request.body, "endpoint_type", BROKERS))
    except RequestError as error:
        return [encode_reply(request, {**fields, **error_fields(error), "brokers": ()})]
    fields |= {
        **error_fields(None),
        "controller_id": image.controller,
        "brokers": [
            *_running(request, broker),
            *(_away(broker) if getattr(request.body, "include_fenced_brokers", False) else ()),
        ],
        "cluster_authorized_operations": (
            cluster_operations_of(request, broker)
            if request.body.include_cluster_authorized_operations
            else NOT_ASKED
        ),
    }
    return [encode_reply(request, fields)]


def _running(request: Request, broker: Broker) -> Iterator[dict[str, object]]:
    for one in reached_brokers(broker.image, request.session):
        yield {
            "broker_id": one.id,
            "host": one.host,
            "port": one.port,
            "rack": one.rack,
            "is_fenced": False,
        }


def _away(broker: Broker) -> Iterator[dict[str, object]]:
    running = broker.image.brokers
    for one, entry in sorted(broker.catalog.registry().items()):
        if one not in running and not entry.is_removed:
            yield {
                "broker_id": one,
                "host": "",
                "port": NO_PORT,
                "rack": entry.rack,
                "is_fenced": True,
            }


def _check_endpoint_type(endpoint_type: int) -> None:
    if endpoint_type == CONTROLLERS:
        raise MismatchedEndpointType("this is an endpoint of a broker, not of a controller")
    if endpoint_type != BROKERS:
        raise UnsupportedEndpointType(f"there is no endpoint type {endpoint_type}")
