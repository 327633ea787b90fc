"""Describes and alters the configs of topics, brokers and groups."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.controller import check_answer, request_controller
from respool.client.kafka.errors import BrokerRefused, VersionUnsupported
from respool.wire.api_table import Api


class ConfigResource(IntEnum):
    TOPIC = 2
    BROKER = 4
    GROUP = 32


class ConfigSource(IntEnum):
    """Where a value was set, with Kafka's numbers."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


class ConfigOperation(IntEnum):
    SET = 0
    DELETE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSetting:
    name: str
    # None for a sensitive value.
    value: str | None
    # A `ConfigSource`, or a number that Kafka has added since.
    source: int
    is_read_only: bool = False
    is_sensitive: bool = False


def describe_configs(
    cluster: Cluster,
    resource: ConfigResource,
    names: Sequence[str],
    *,
    keys: Sequence[str] | None = None,
) -> dict[str, dict[str, ConfigSetting]]:
    """Return topic, group, or broker id as text -> its configs by name; only `keys`, or all. One attempt.

    A broker reports only its own configs, so each is asked for them; any broker reports the configs of topics, of
    groups, and of all brokers, whose name is empty.

    Raises:
        BrokerRefused, BrokerUnreachable
    """
    found: dict[str, dict[str, ConfigSetting]] = {}
    for asked in [[name] for name in names] if resource is ConfigResource.BROKER else [list(names)]:
        if not asked:
            continue
        fields = {
            "resources": [
                {
                    "resource_type": int(resource),
                    "resource_name": name,
                    "configuration_keys": None if keys is None else list(keys),
                }
                for name in asked
            ],
            "include_synonyms": False,
            "include_documentation": False,
        }
        if resource is ConfigResource.BROKER and asked[0]:
            reply = cluster.request(int(asked[0]), Api.DESCRIBE_CONFIGS, fields)
        else:
            reply = cluster.request_any(Api.DESCRIBE_CONFIGS, fields)
        for result in reply.results:
            check_answer(f"describing configs of {result.resource_name}", result)
            found[str(result.resource_name)] = {
                str(one.name): ConfigSetting(
                    name=str(one.name),
                    value=one.value,
                    source=int(one.config_source),
                    is_read_only=bool(one.read_only),
                    is_sensitive=bool(one.is_sensitive),
                )
                for one in result.configs
            }
    return found


def alter_configs(
    cluster: Cluster,
    resource: ConfigResource,
    name: str,
    *,
    values: Mapping[str, str] | None = None,
    deleted: Iterable[str] = (),
    validate_only: bool = False,
) -> None:
    """Set `values`, and reset the `deleted` configs to their defaults; other configs are unchanged.

    Raises:
        BrokerRefused, BrokerUnreachable
    """
    configs = [
        {"name": key, "config_operation": int(ConfigOperation.SET), "value": value}
        for key, value in (values or {}).items()
    ] + [
        {"name": key, "config_operation": int(ConfigOperation.DELETE), "value": None}
        for key in deleted
    ]
    resources = [{"resource_type": int(resource), "resource_name": name, "configs": configs}]
    request_controller(
        cluster,
        Api.INCREMENTAL_ALTER_CONFIGS,
        {"resources": resources, "validate_only": validate_only},
        doing=f"altering configs of {name}",
        answers_of=lambda reply: reply.responses,
        broker=int(name) if resource is ConfigResource.BROKER and name else None,
    )


def batch_bytes_max(cluster: Cluster, topic: str) -> int | None:
    """The topic's max.message.bytes; None if the brokers do not support or authorize the request.

    Raises:
        BrokerUnreachable: no broker answers.
    """
    name = "max.message.bytes"
    try:
        found = describe_configs(cluster, ConfigResource.TOPIC, [topic], keys=[name])
    except (VersionUnsupported, BrokerRefused):
        return None
    entry = found.get(topic, {}).get(name)
    value = "" if entry is None else entry.value or ""
    return int(value) if value.isdigit() else None
