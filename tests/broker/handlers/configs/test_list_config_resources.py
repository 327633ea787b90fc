"""ListConfigResources."""

from typing import Any

import pytest

from broker.running_broker import RunningBroker
from respool.wire.api_table import Api

UNSUPPORTED_VERSION = 35
TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


@pytest.fixture
def two_topics(running_broker: RunningBroker) -> RunningBroker:
    running_broker.create_topic("a")
    running_broker.create_topic("b")
    return running_broker


def ask(broker: RunningBroker, *types: int) -> tuple[int, list[tuple[int, str]]]:
    reply = broker.ask(Api.LIST_CONFIG_RESOURCES, 1, resource_types=types)
    found: Any = reply.config_resources
    return reply.error_code, [(one.resource_type, one.resource_name) for one in found]


def test_version_0_asks_for_client_metrics_and_there_are_none(two_topics: RunningBroker) -> None:
    reply = two_topics.ask(Api.LIST_CONFIG_RESOURCES, 0)

    assert (reply.error_code, reply.config_resources) == (0, ())


def test_all_resources_are_told_when_no_type_is_named(two_topics: RunningBroker) -> None:
    found = [(TOPIC, "a"), (TOPIC, "b"), (BROKER, "1"), (LOGGER, "1")]
    assert ask(two_topics) == (0, found)


def test_only_the_types_named_are_told(two_topics: RunningBroker) -> None:
    assert ask(two_topics, BROKER) == (0, [(BROKER, "1")])
    assert ask(two_topics, TOPIC, TOPIC) == (0, [(TOPIC, "a"), (TOPIC, "b")])
    assert ask(two_topics, LOGGER, CLIENT_METRICS, GROUP) == (0, [(LOGGER, "1")])


def test_a_group_is_told_once_it_has_settings(two_topics: RunningBroker) -> None:
    two_topics.set_for_group("riders", {"consumer.session.timeout.ms": "50000"})
    assert ask(two_topics, GROUP) == (0, [(GROUP, "riders")])
    two_topics.set_for_group("riders", {})
    assert ask(two_topics, GROUP) == (0, [])


def test_a_type_that_does_not_exist_is_refused(two_topics: RunningBroker) -> None:
    assert ask(two_topics, TOPIC, 77) == (UNSUPPORTED_VERSION, [])
