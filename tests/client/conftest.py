"""One broker per test file."""

from collections.abc import Iterator

import pytest

from support.broker_process import BrokerProcess
from support.topics import Topics


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {
        "compaction_check_ms": 50,
        "retention_check_ms": 50,
        "tag_index_check_ms": 50,
        "transactions_topic_partitions": 3,
        "offsets_topic_partitions": 3,
    }
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", settings) as running:
        yield running


@pytest.fixture(scope="module")
def topics(broker: BrokerProcess) -> Topics:
    return Topics(broker.address)
