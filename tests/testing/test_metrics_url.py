"""Metrics and health of a broker inside a test, over its own address."""

from collections.abc import Iterator
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from respool.testing import Broker


@pytest.fixture(params=["thread", "process"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(mode=request.param, settings={"metrics_listen": "127.0.0.1:0"}) as running:
        yield running


def page(broker: Broker, path: str) -> str:
    assert broker.metrics_url is not None
    url = broker.metrics_url.removesuffix("/metrics") + path
    with urlopen(url, timeout=60) as reply:
        text: str = reply.read().decode()
        return text


def test_a_brokers_metrics_and_health_are_where_it_says(broker: Broker) -> None:
    assert "respool_partitions" in page(broker, "/metrics")
    assert page(broker, "/healthz") == "ok\n"
    assert page(broker, "/readyz") == "ready\n"
    with pytest.raises(HTTPError, match="404"):
        page(broker, "/")
    broker.stop()
    broker.start()
    assert page(broker, "/readyz") == "ready\n"


def test_a_broker_without_metrics_has_no_address_for_them() -> None:
    with Broker() as broker:
        assert broker.metrics_url is None
