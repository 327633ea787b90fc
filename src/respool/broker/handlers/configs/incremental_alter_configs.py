"""IncrementalAlterConfigs (key 44): set, delete or extend single settings of a topic, broker or group."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn

from respool.broker.broker import Broker
from respool.broker.handlers.support.config_resources import (
    Operation,
    ResourceType,
    change_each,
)
from respool.broker.handlers.support.logger_levels import change_log_levels
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.rights import (
    ALTER_CLUSTER_CONFIGS,
    ALTER_GROUP_CONFIGS,
    ALTER_TOPIC_CONFIGS,
)
from respool.broker.outcome import Reply
from respool.broker.share.finished_records import refuse_if_read
from respool.model.cluster import TopicImage
from respool.model.config_rules import ConfigKind, ConfigRule
from respool.model.dynamic_config import DYNAMIC_RULES
from respool.model.errors import InvalidConfig, InvalidRequest
from respool.model.throttled_replicas import TEXT_LENGTH_MAX
from respool.model.topic_config import CONFIG_RULES, TopicConfig
from respool.model.topic_defaults import SETTING_OF_DEFAULT
from respool.model.view_config import settings_of
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
        given = {one.name: one.value or "" for one in resource.configs}
        await refuse_if_read(broker, resource.resource_name, given)
        await broker.topics.change_overrides(
            resource.resource_name,
            lambda topic: _rewritten(settings_of(topic), resource, partial(_changed_list, topic)),
            validate_only=request.body.validate_only,
        )

    async def change_broker(resource: Any) -> None:
        _check(resource)
        await broker.broker_configs.change(
            resource.resource_name,
            # Deleting an override that was never set succeeds: kafka-reassign-partitions does that with throttles.
            lambda overrides: _rewritten(
                overrides, resource, partial(_changed_default, broker, overrides)
            ),
            validate_only=request.body.validate_only,
        )

    async def change_group(resource: Any) -> None:
        _check(resource)
        await broker.broker_configs.change_group(
            resource.resource_name,
            lambda overrides: _rewritten(overrides, resource, _no_list),
            validate_only=request.body.validate_only,
        )

    async def change_loggers(resource: Any) -> None:
        change_log_levels(resource, broker, validate_only=request.body.validate_only)

    return await change_each(
        request,
        broker,
        {
            ResourceType.TOPIC: change_topic,
            ResourceType.BROKER: change_broker,
            ResourceType.BROKER_LOGGER: change_loggers,
            ResourceType.GROUP: change_group,
        },
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
    if topic.view is not None:
        _no_list(config)
    rule = CONFIG_RULES.get(config.name)
    if rule is None:
        # Raises InvalidConfig: the name is unknown, or refused.
        TopicConfig.parse({config.name: config.value})
    if not _is_list(rule):
        _no_list(config)
    # Without an override for the topic, the list starts from the broker's default.
    return _list_after(topic.config.as_text[config.name], config)


def _changed_default(broker: Broker, overrides: Mapping[str, str], config: Any) -> str:
    if not _is_list(DYNAMIC_RULES.get(config.name)):
        _no_list(config)
    default = broker.catalog.topic_defaults.as_text[SETTING_OF_DEFAULT[config.name]]
    return _list_after(overrides.get(config.name, default), config)


def _is_list(rule: ConfigRule | None) -> bool:
    return rule is not None and rule.kind is ConfigKind.LIST


def _list_after(before: str, config: Any) -> str:
    """The list with items added or removed; they stay unique and in order."""
    if len(config.value) > TEXT_LENGTH_MAX:
        raise InvalidConfig(f"{config.name}: {len(config.value)} characters")
    items = dict.fromkeys(filter(None, before.split(",")))
    given = dict.fromkeys(filter(None, map(str.strip, config.value.split(","))))
    if config.config_operation == Operation.APPEND:
        items |= given
    else:
        items = {item: None for item in items if item not in given}
    return ",".join(items)


def _no_list(config: Any) -> NoReturn:
    raise InvalidConfig(f"{config.name} is not a list, so nothing can be appended or subtracted")
