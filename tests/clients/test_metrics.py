"""What an operator's Prometheus sees of real clients."""

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException

from support.broker_process import BrokerProcess
from support.confluent_client import ConfluentClient
from support.message import Message
from support.metrics import METRICS, counted, metrics_port
from support.topics import Topics
from support.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("metrics")]

CLIENT = ConfluentClient()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", METRICS) as running:
        yield running


def test_bytes_times_and_errors_are_counted_by_api(broker: BrokerProcess, topics: Topics) -> None:
    port = metrics_port(broker)
    topic = topics.new("keyed", cleanup_policy="compact")
    value = b"v" * 10_000
    CLIENT.write(broker.address, (topic, 0), [Message(key=b"k", value=value)], idempotent=False)
    assert len(CLIENT.read(broker.address, [(topic, 0)])[topic, 0]) == 1
    with pytest.raises(KafkaException):
        CLIENT.write(broker.address, (topic, 0), [Message(value=value)], idempotent=False)

    def errors() -> float:
        return counted(port, "respool_errors_total", api="Produce", error="INVALID_RECORD")

    wait_until(lambda: errors() == 1, "the refusal is counted")
    assert counted(port, "respool_reply_bytes_total", api="Fetch") > 10_000
    assert 0 < counted(port, "respool_reply_bytes_total", api="Produce") < 1_000
    assert counted(port, "respool_request_seconds_count", api="Produce") == 2
    # The appends were synced before they were answered, and nobody waited long for that.
    assert 0 < counted(port, "respool_request_seconds_sum", api="Produce") < 60
    assert counted(port, "respool_request_seconds_bucket", api="Produce", le="+Inf") == 2
