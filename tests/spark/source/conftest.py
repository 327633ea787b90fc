"""One broker per test, and readers of it."""

from collections import deque
from collections.abc import Iterator

import pytest

from respool.spark.source import loss
from respool.testing import Broker
from support.spark_story import Story


@pytest.fixture(autouse=True)
def _nothing_told_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss, "_told", deque(maxlen=100))


@pytest.fixture
def story(broker: Broker) -> Iterator[Story]:
    told = Story(broker)
    yield told
    told.close()
