"""One broker per test, and readers of it."""

from collections.abc import Iterator

import pytest

from respool.testing import Broker
from support.spark_story import Story


@pytest.fixture
def story(broker: Broker) -> Iterator[Story]:
    told = Story(broker)
    yield told
    told.close()
