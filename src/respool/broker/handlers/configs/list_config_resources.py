"""ListConfigResources (key 74): the resources whose settings DescribeConfigs can show.

Version 0 was ListClientMetricsResources, and there are no client metrics here. From version 1 on the client names the
resource types; an empty list means all (KIP-1142).
"""

from collections.abc import Iterator

from respool.broker.broker import Broker
from respool.broker.handlers.support.config_resources import ResourceType
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.rights import DESCRIBE_CLUSTER_CONFIGS
from respool.broker.outcome import Reply
from respool.model.errors import UnsupportedVersion
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply

_KNOWN: frozenset[int] = frozenset(ResourceType)


@serves(Api.LIST_CONFIG_RESOURCES, versions=(0, 1), rights=(DESCRIBE_CLUSTER_CONFIGS,))
def list_config_resources(request: Request, broker: Broker) -> Reply:
    refusal = broker.access.refusal(request, DESCRIBE_CLUSTER_CONFIGS)
    if refusal is not None:
        refused = {"throttle_time": 0, "error_code": refusal.code, "config_resources": ()}
        return [encode_reply(request, refused)]
    if request.version == 0:
        types: tuple[int, ...] = (ResourceType.CLIENT_METRICS,)
    else:
        types = request.body.resource_types or tuple(ResourceType)
    is_known = _KNOWN.issuperset(types)
    fields = {
        "throttle_time": 0,
        "error_code": 0 if is_known else UnsupportedVersion.code,
        "config_resources": [
            {"resource_name": name, "resource_type": one}
            for one in dict.fromkeys(types)
            for name in _names(broker, one)
            if is_known
        ],
    }
    return [encode_reply(request, fields)]


def _names(broker: Broker, resource_type: int) -> Iterator[str]:
    if resource_type == ResourceType.TOPIC:
        yield from broker.image.topics
        # Also those that are not listed: this is how tools find all views.
        yield from broker.image.views
    elif resource_type == ResourceType.GROUP:
        yield from broker.image.group_configs
    elif resource_type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        yield from map(str, broker.image.brokers)
