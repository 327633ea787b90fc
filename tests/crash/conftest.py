"""A broker to be killed: on a real disk, with checkpoints so often that many of them are under way when it dies."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.broker_process import BrokerProcess

StartBroker = Callable[..., BrokerProcess]


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Start a broker on a fresh folder with any settings; it is stopped and checked at the end."""
    with ExitStack() as stack:

        def start(**settings: object) -> BrokerProcess:
            broker = BrokerProcess(tmp_path / "data", {"checkpoint_ms": 100, **settings})
            return stack.enter_context(broker)

        yield start
