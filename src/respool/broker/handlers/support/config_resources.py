"""Config resources: what settings belong to, named in the config APIs by a type and a name."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from enum import IntEnum
from typing import Any, TypeAlias

from respool.broker.admin_log import listed, quoted
from respool.broker.broker import Broker
from respool.broker.handlers.support.replies import error_fields
from respool.broker.handlers.support.rights import (
    ALTER_CLUSTER_CONFIGS,
    ALTER_GROUP_CONFIGS,
    ALTER_TOPIC_CONFIGS,
    DESCRIBE_CLUSTER_CONFIGS,
    DESCRIBE_GROUP_CONFIGS,
    DESCRIBE_TOPIC_CONFIGS,
    Right,
)
from respool.broker.outcome import Reply
from respool.model.errors import InvalidRequest, RequestError
from respool.model.kafka_settings.kafka_flush import delayed_flush
from respool.model.security.acl import CLUSTER_NAME, AclResource
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply


class Operation(IntEnum):
    """The operations of IncrementalAlterConfigs on one setting."""

    SET = 0
    # Restore the broker's default.
    DELETE = 1
    # Add items to a list, and remove items from it.
    APPEND = 2
    SUBTRACT = 3


class ResourceType(IntEnum):
    """Kafka's numbers. Client metrics have no settings in Respool."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


Change: TypeAlias = Callable[[Any], Awaitable[None]]

_NOUNS: Mapping[int, str] = {
    ResourceType.TOPIC: "topic",
    ResourceType.BROKER: "broker",
    ResourceType.BROKER_LOGGER: "loggers of broker",
    ResourceType.GROUP: "group",
}


def check_is_this_broker(name: str, broker: Broker) -> None:
    """Check a broker resource's name: this broker's id, or empty for all brokers.

    Raises:
        InvalidRequest: it names another broker, or is not a number.
    """
    if name not in ("", str(broker.id)):
        raise InvalidRequest(f"this is broker {broker.id}, not {name!r}")


def check_config_right(request: Request, broker: Broker, resource: Any, *, changes: bool) -> None:
    """Check the right to change the resource's settings, or to describe them.

    Raises:
        RequestError: the client is not authorized.
    """
    rights = _RIGHTS.get(resource.resource_type)
    if rights is not None:
        right = rights[1 if changes else 0]
        is_cluster = right.resource is AclResource.CLUSTER
        broker.access.check(request, right, CLUSTER_NAME if is_cluster else resource.resource_name)


_OF_CLUSTER = (DESCRIBE_CLUSTER_CONFIGS, ALTER_CLUSTER_CONFIGS)
# To describe and to change the settings of resources of each type. Unknown types have nothing to protect.
_RIGHTS: Mapping[int, tuple[Right, Right]] = {
    ResourceType.TOPIC: (DESCRIBE_TOPIC_CONFIGS, ALTER_TOPIC_CONFIGS),
    ResourceType.GROUP: (DESCRIBE_GROUP_CONFIGS, ALTER_GROUP_CONFIGS),
    ResourceType.BROKER: _OF_CLUSTER,
    ResourceType.BROKER_LOGGER: _OF_CLUSTER,
    ResourceType.CLIENT_METRICS: _OF_CLUSTER,
}


async def change_each(request: Request, broker: Broker, changes: Mapping[int, Change]) -> Reply:
    """Change the settings of each resource in the request and return the results in request order.

    `changes` has what changes a resource, by type.

    A resource is changed as a whole or not at all.
    """
    resources = request.body.resources
    times_named = Counter((one.resource_type, one.resource_name) for one in resources)
    responses = []
    for one in resources:
        error: RequestError | None = None
        try:
            check_config_right(request, broker, one, changes=True)
            if times_named[one.resource_type, one.resource_name] > 1:
                raise InvalidRequest(f"{one.resource_name!r} is in the request more than once")
            _check_names(one)
            change = changes.get(one.resource_type)
            if change is None:
                raise InvalidRequest(
                    f"this API changes no settings of resources of type {one.resource_type} here"
                )
            await change(one)
            if not request.body.validate_only:
                _log_change(request, broker, one)
        except RequestError as refused:
            error = refused
        responses.append(
            {
                **error_fields(error),
                "resource_type": one.resource_type,
                "resource_name": one.resource_name,
            }
        )
    return [encode_reply(request, {"throttle_time": 0, "responses": responses})]


def _log_change(request: Request, broker: Broker, resource: Any) -> None:
    kind = _NOUNS[resource.resource_type]
    what = "changed" if request.api.key == Api.INCREMENTAL_ALTER_CONFIGS else "replaced"
    # An empty name means all brokers.
    name = quoted(resource.resource_name) if resource.resource_name else "default"
    configs = listed(map(_config_text, resource.configs)) or "none"
    broker.admin_log.log(request, f"{what} configs of {kind} {name}: {configs}{_warning(resource)}")


def _warning(resource: Any) -> str:
    if resource.resource_type not in (ResourceType.TOPIC, ResourceType.BROKER):
        return ""
    flush = delayed_flush(
        {
            one.name: one.value.strip()
            for one in resource.configs
            if getattr(one, "config_operation", Operation.SET) == Operation.SET and one.value
        }
    )
    if flush is None:
        return ""
    return f"; with {flush} acks=all is answered from the page cache, unset it to keep fdatasync"


def _config_text(config: Any) -> str:
    operation = getattr(config, "config_operation", Operation.SET)
    if operation == Operation.DELETE:
        return f"{config.name} unset"
    sign = {Operation.APPEND: "+=", Operation.SUBTRACT: "-="}.get(operation, "=")
    return f"{config.name}{sign}{quoted(config.value)}"


def _check_names(resource: Any) -> None:
    times_set = Counter(config.name for config in resource.configs)
    twice = [name for name, times in times_set.items() if times > 1]
    if twice:
        raise InvalidRequest(f"more than one value for {', '.join(twice)}")
