"""AlterConfigs (key 33): replace all overrides of a topic, broker or group. Old clients have no other API for it."""

from collections.abc import Mapping
from typing import Any

from respool.broker.broker import Broker
from respool.broker.handlers.support.config_resources import ResourceType, change_each
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.rights import (
    ALTER_CLUSTER_CONFIGS,
    ALTER_GROUP_CONFIGS,
    ALTER_TOPIC_CONFIGS,
)
from respool.broker.outcome import Reply
from respool.broker.share.finished_records import refuse_if_read
from respool.model.cluster import TopicImage
from respool.model.errors import InvalidRequest
from respool.model.view_config import OF
from respool.wire.api_table import Api
from respool.wire.codec import Request


@serves(
    Api.ALTER_CONFIGS,
    versions=(0, 2),
    rights=(
        ALTER_TOPIC_CONFIGS.when("of a topic"),
        ALTER_GROUP_CONFIGS.when("of a group"),
        ALTER_CLUSTER_CONFIGS.when("of a broker"),
    ),
)
async def alter_configs(request: Request, broker: Broker) -> Reply:
    async def change_topic(resource: Any) -> None:
        overrides = _overrides(resource)
        await refuse_if_read(broker, resource.resource_name, overrides)
        await broker.topics.change_overrides(
            resource.resource_name,
            lambda topic: _with_parent(topic, overrides),
            validate_only=request.body.validate_only,
        )

    async def change_broker(resource: Any) -> None:
        overrides = _overrides(resource)
        await broker.broker_configs.change(
            resource.resource_name,
            lambda _overrides: overrides,
            validate_only=request.body.validate_only,
        )

    async def change_group(resource: Any) -> None:
        overrides = _overrides(resource)
        await broker.broker_configs.change_group(
            resource.resource_name,
            lambda _overrides: overrides,
            validate_only=request.body.validate_only,
        )

    return await change_each(
        request,
        broker,
        {
            ResourceType.TOPIC: change_topic,
            ResourceType.BROKER: change_broker,
            ResourceType.GROUP: change_group,
        },
    )


def _with_parent(topic: TopicImage, overrides: Mapping[str, str]) -> Mapping[str, str]:
    """A view keeps its parent, which a client that replaces all settings need not name."""
    return overrides if topic.view is None else {OF: topic.view.parent, **overrides}


def _overrides(resource: Any) -> Mapping[str, str]:
    null = [config.name for config in resource.configs if config.value is None]
    if null:
        raise InvalidRequest(f"no value given for {', '.join(null)}")
    return {config.name: config.value for config in resource.configs}
