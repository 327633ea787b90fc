"""One broker per test file, in the tests' process, so that time moves when a test moves it; groups form at once."""

from collections.abc import Iterator

import pytest

from client.messages.conftest import SETTINGS
from client.messages.retry.story import RetryStory
from respool.testing import Broker
from support.quick_broker import quick_broker
from support.topics import Topics


@pytest.fixture(scope="module")
def retry_broker() -> Iterator[Broker]:
    with quick_broker(SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def retry_broker_topics(retry_broker: Broker) -> Topics:
    return Topics(retry_broker.bootstrap)


@pytest.fixture
def story(retry_broker: Broker, retry_broker_topics: Topics) -> RetryStory:
    return RetryStory(retry_broker, retry_broker_topics)
