"""Views: topics that show some records of another one, as brokers describe them in their configs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import Code
from respool.client.kafka.configs import ConfigResource, ConfigSetting, describe_configs
from respool.client.kafka.errors import BrokerRefused, VersionUnsupported
from respool.model.view_config import LISTED, OF, WHERE
from respool.wire.api_table import Api

# Lists that become outdated, because topics are deleted, before their configs are described.
TRIES_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewDescription:
    name: str
    parent: str
    # In the canonical form.
    where: str
    is_listed: bool


def views_among(cluster: Cluster, names: Sequence[str]) -> dict[str, ViewDescription]:
    """Those of these topics that are views. One attempt.

    Raises:
        BrokerRefused: one of them does not exist.
        BrokerUnreachable
    """
    found = describe_configs(cluster, ConfigResource.TOPIC, names, keys=(OF, WHERE, LISTED))
    return {name: _description(name, configs) for name, configs in found.items() if OF in configs}


def all_views(cluster: Cluster) -> dict[str, ViewDescription]:
    """All views, by name, also those that are not listed.

    Raises:
        BrokerRefused, BrokerUnreachable
    """
    for tries_left in reversed(range(TRIES_MAX)):
        try:
            return views_among(cluster, _topic_names(cluster))
        except BrokerRefused as error:
            if error.code != Code.unknown_topic_or_partition or not tries_left:
                raise
    raise AssertionError("the last attempt returns or raises")


def _topic_names(cluster: Cluster) -> list[str]:
    """The names of all topics; of a broker without views, none: Kafka lists topics here since 4.1."""
    fields = {"resource_types": [int(ConfigResource.TOPIC)]}
    try:
        reply = cluster.request_any(Api.LIST_CONFIG_RESOURCES, fields)
    except VersionUnsupported:
        return []
    return sorted(str(one.resource_name) for one in reply.config_resources)


def _description(name: str, configs: Mapping[str, ConfigSetting]) -> ViewDescription:
    def value(key: str) -> str:
        return (configs[key].value or "") if key in configs else ""

    return ViewDescription(
        name=name, parent=value(OF), where=value(WHERE), is_listed=value(LISTED) == "true"
    )
