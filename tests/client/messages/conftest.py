"""One broker per test file; groups form at once."""

from collections.abc import Iterator

import pytest

from respool.client.messages import library
from support.broker_process import BrokerProcess
from support.topics import Topics

SETTINGS = {
    "group_initial_rebalance_delay_ms": 0,
    "group_min_session_timeout_ms": 1_000,
    "group_consumer_heartbeat_interval_ms": 200,
    "offsets_topic_partitions": 2,
    "transactions_topic_partitions": 2,
    "auto_create_topics": False,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def topics(broker: BrokerProcess) -> Topics:
    return Topics(broker.address)


@pytest.fixture(autouse=True)
def _topics_are_known_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client waits three seconds for a topic that may just have been made; here it is there or will never be."""
    monkeypatch.setattr(library, "TOPIC_SECONDS", 0.3)
