"""IncrementalAlterConfigs (key 44): set, unset or extend single settings of a topic; the others stay (KIP-339)."""

from enum import IntEnum
from typing import Any

from respool.broker.broker import Broker
from respool.broker.handlers.config_resources import change_each
from respool.broker.outcome import Reply
from respool.model.cluster import TopicImage
from respool.model.errors import InvalidConfig, InvalidRequest
from respool.model.topic_config import CONFIG_RULES, ConfigKind
from respool.wire.codec import Request


class Operation(IntEnum):
    SET = 0
    # Back to the broker's default.
    DELETE = 1
    # Add to a list, and take from it.
    APPEND = 2
    SUBTRACT = 3


_OPERATIONS: frozenset[int] = frozenset(Operation)


async def incremental_alter_configs(request: Request, broker: Broker) -> Reply:
    async def change(resource: Any) -> None:
        _check(resource)
        await broker.topics.change_overrides(
            resource.resource_name,
            lambda topic: _rewritten(topic, resource),
            validate_only=request.body.validate_only,
        )

    return await change_each(request, broker, change)


def _check(resource: Any) -> None:
    for config in resource.configs:
        if config.config_operation not in _OPERATIONS:
            raise InvalidRequest(f"{config.name}: there is no operation {config.config_operation}")
        if config.value is None and config.config_operation != Operation.DELETE:
            raise InvalidRequest(f"no value given for {config.name}")


def _rewritten(topic: TopicImage, resource: Any) -> dict[str, str]:
    """The topic's overrides after the change."""
    overrides = dict(topic.overrides)
    for config in resource.configs:
        if config.config_operation == Operation.DELETE:
            overrides.pop(config.name, None)
        elif config.config_operation == Operation.SET:
            overrides[config.name] = config.value
        else:
            overrides[config.name] = _changed_list(topic, config)
    return overrides


def _changed_list(topic: TopicImage, config: Any) -> str:
    rule = CONFIG_RULES.get(config.name)
    if rule is None or rule.kind is not ConfigKind.LIST:
        raise InvalidConfig(f"{config.name} is no list that could be added to or taken from")
    # A list that was never set for the topic is the broker's default.
    items = [item for item in topic.config.as_text[config.name].split(",") if item]
    given = [item.strip() for item in config.value.split(",")]
    if config.config_operation == Operation.APPEND:
        items += [item for item in given if item not in items]
    else:
        items = [item for item in items if item not in given]
    return ",".join(items)
