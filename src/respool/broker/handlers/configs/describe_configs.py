"""DescribeConfigs (key 32): the settings of topics and views, of groups and of this broker, and its loggers' levels."""

from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from typing import Any

from respool.broker.broker import Broker
from respool.broker.handlers.support.client_errors import why_unknown
from respool.broker.handlers.support.config_entries import (
    BrokerLayers,
    ConfigEntry,
    all_brokers_entries,
    broker_entries,
    topic_entries,
    view_entries,
)
from respool.broker.handlers.support.config_resources import (
    ResourceType,
    check_config_right,
    check_is_this_broker,
)
from respool.broker.handlers.support.group_config_entries import group_entries
from respool.broker.handlers.support.logger_levels import logger_entries
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_fields
from respool.broker.handlers.support.rights import (
    DESCRIBE_CLUSTER_CONFIGS,
    DESCRIBE_GROUP_CONFIGS,
    DESCRIBE_TOPIC_CONFIGS,
)
from respool.broker.outcome import Reply
from respool.model.broker_config import ALL_BROKERS
from respool.model.errors import InvalidRequest, RequestError
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply

LONG_TEXTS_FROM_VERSION = 4
SHORT_TEXT_BYTES_MAX = 2**15 - 1


@serves(
    Api.DESCRIBE_CONFIGS,
    versions=(1, 4),
    rights=(
        DESCRIBE_TOPIC_CONFIGS.when("of a topic"),
        DESCRIBE_GROUP_CONFIGS.when("of a group"),
        DESCRIBE_CLUSTER_CONFIGS.when("of a broker"),
    ),
)
def describe_configs(request: Request, broker: Broker) -> Reply:
    body = request.body
    with_synonyms = body.include_synonyms
    with_doc = getattr(body, "include_documentation", False)
    has_long_texts = request.version >= LONG_TEXTS_FROM_VERSION
    shown_text = partial(_shown_text, bytes_max=inf if has_long_texts else SHORT_TEXT_BYTES_MAX)
    # Once for all topics of the request, which may be thousands.
    layers = _layers(broker)
    results = []
    for resource in body.resources:
        error: RequestError | None = None
        configs: list[dict[str, object]] = []
        try:
            check_config_right(request, broker, resource, changes=False)
            configs = [
                _entry_fields(
                    entry, with_synonyms=with_synonyms, with_doc=with_doc, shown_text=shown_text
                )
                for entry in _entries(broker, resource, layers)
                # No names means all settings; an unknown name is omitted.
                if not resource.configuration_keys or entry.name in resource.configuration_keys
            ]
        except RequestError as refused:
            error = refused
        results.append(
            {
                **error_fields(error),
                "resource_type": resource.resource_type,
                "resource_name": resource.resource_name,
                "configs": configs,
            }
        )
    return [encode_reply(request, {"throttle_time": 0, "results": results})]


def _entries(broker: Broker, resource: Any, layers: BrokerLayers) -> Iterator[ConfigEntry]:
    name = resource.resource_name
    kind = resource.resource_type
    if kind == ResourceType.TOPIC:
        topic = broker.image.readable(name)
        if topic is None:
            raise why_unknown(name)
        return topic_entries(topic, layers) if topic.view is None else view_entries(topic)
    if kind == ResourceType.BROKER:
        check_is_this_broker(name, broker)
        entries = all_brokers_entries if name == ALL_BROKERS else broker_entries
        return entries(layers)
    if kind == ResourceType.BROKER_LOGGER:
        return logger_entries(name, broker)
    if kind == ResourceType.GROUP:
        if not name:
            raise InvalidRequest("Group name must not be empty")
        image = broker.image
        stored = image.stored_group_overrides.get(name)
        own = {} if stored is None else stored.values
        return group_entries(image.group_configs.get(name), own, layers)
    raise InvalidRequest(f"resources of type {kind} have no settings here")


def _layers(broker: Broker) -> BrokerLayers:
    return BrokerLayers.of(
        broker.settings,
        broker.image.broker_overrides,
        defaults=broker.catalog.topic_defaults,
        broker_count=max(1, len(broker.catalog.view(with_strays=False).candidates())),
    )


def _shown_text(text: str | None, *, bytes_max: float) -> str | None:
    """Return None if `text` is too long for the version: old versions cannot encode long throttle lists."""
    return text if text is None or len(text.encode()) <= bytes_max else None


def _entry_fields(
    entry: ConfigEntry,
    *,
    with_synonyms: bool,
    with_doc: bool,
    shown_text: Callable[[str | None], str | None],
) -> dict[str, object]:
    synonyms = entry.synonyms if with_synonyms else ()
    return {
        "name": entry.name,
        "value": shown_text(entry.value),
        "read_only": entry.read_only,
        "config_source": entry.source,
        "is_sensitive": entry.is_sensitive,
        "synonyms": [
            {"name": one.name, "value": shown_text(one.value), "source": one.source}
            for one in synonyms
        ],
        "config_type": entry.type,
        "documentation": entry.doc if with_doc else None,
    }
