"""IncrementalAlterConfigs (key 44): set, delete or extend single settings of a topic or broker; others stay."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn

from respool.broker.broker import Broker
from respool.broker.handlers.support.config_resources import Operation, change_each
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.rights import (
    ALTER_CLUSTER_CONFIGS,
    ALTER_GROUP_CONFIGS,
    ALTER_TOPIC_CONFIGS,
)
from respool.broker.outcome import Reply
from respool.model.cluster import TopicImage
from respool.model.config_rules import ConfigKind
from respool.model.errors import InvalidConfig, InvalidRequest
from respool.model.throttled_replicas import TEXT_LENGTH_MAX
from respool.model.topic_config import CONFIG_RULES, TopicConfig
from respool.wire.api_table import Api
from respool.wire.codec import Request

_OPERATIONS: frozenset[int] = frozenset(Operation)


@serves(
    Api.INCREMENTAL_ALTER_CONFIGS,
    versions=(0, 1),
    rights=(
        ALTER_TOPIC_CONFIGS.when("of a topic"),
        ALTER_GROUP_CONFIGS.when("of a group"),
        ALTER_CLUSTER_CONFIGS.when("of a broker"),
    ),
)
async def incremental_alter_configs(request: Request, broker: Broker) -> Reply:
    async def change_topic(resource: Any) -> None:
        _check(resource)
        await broker.topics.change_overrides(
            resource.resource_name,
            lambda topic: _rewritten(topic.overrides, resource, partial(_changed_list, topic)),
            validate_only=request.body.validate_only,
        )

    async def change_broker(resource: Any) -> None:
        _check(resource)
        await broker.broker_configs.change(
            resource.resource_name,
            # Deleting an override that was never set succeeds: kafka-reassign-partitions does that with throttles.
            lambda overrides: _rewritten(overrides, resource, _no_list),
            validate_only=request.body.validate_only,
        )

    return await change_each(
        request, broker, change_topic=change_topic, change_broker=change_broker
    )


def _check(resource: Any) -> None:
    for config in resource.configs:
        if config.config_operation not in _OPERATIONS:
            raise InvalidRequest(f"{config.name}: there is no operation {config.config_operation}")
        if config.value is None and config.config_operation != Operation.DELETE:
            raise InvalidRequest(f"no value given for {config.name}")


def _rewritten(
    before: Mapping[str, str], resource: Any, changed_list: Callable[[Any], str]
) -> dict[str, str]:
    """Return the overrides after the change."""
    overrides = dict(before)
    for config in resource.configs:
        if config.config_operation == Operation.DELETE:
            overrides.pop(config.name, None)
        elif config.config_operation == Operation.SET:
            overrides[config.name] = config.value
        else:
            overrides[config.name] = changed_list(config)
    return overrides


def _changed_list(topic: TopicImage, config: Any) -> str:
    rule = CONFIG_RULES.get(config.name)
    if rule is None:
        # Raises InvalidConfig: the name is unknown, or refused.
        TopicConfig.parse({config.name: config.value})
    if rule is None or rule.kind is not ConfigKind.LIST:
        _no_list(config)
    if len(config.value) > TEXT_LENGTH_MAX:
        raise InvalidConfig(f"{config.name}: {len(config.value)} characters")
    # Without an override for the topic, the list starts from the broker's default. Items stay unique and in order.
    items = dict.fromkeys(filter(None, topic.config.as_text[config.name].split(",")))
    given = dict.fromkeys(filter(None, map(str.strip, config.value.split(","))))
    if config.config_operation == Operation.APPEND:
        items |= given
    else:
        items = {item: None for item in items if item not in given}
    return ",".join(items)


def _no_list(config: Any) -> NoReturn:
    raise InvalidConfig(f"{config.name} is no list that could be added to or taken from")
