import socket
import urllib.request
from collections.abc import Iterator

import pytest

from respool.drivers.prometheus import PrometheusMetrics
from respool.model.errors import SettingsError


@pytest.fixture
def metrics() -> Iterator[PrometheusMetrics]:
    made = PrometheusMetrics()
    yield made
    made.close()


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as reply:
        text: str = reply.read().decode()
        return text


def test_instruments_are_shown_with_their_labels(metrics: PrometheusMetrics) -> None:
    metrics.counter("respool_requests_total", "Requests.", api="fetch", version="12").inc(3)
    metrics.counter("respool_requests_total", "Requests.", version="3", api="produce").inc()
    metrics.gauge("respool_connections", "Connections.").set(5)
    metrics.histogram("respool_request_seconds", "Time.", buckets=(0.1, 1), api="fetch").observe(
        0.5
    )
    lines = metrics.text().splitlines()
    assert 'respool_requests_total{api="fetch",version="12"} 3.0' in lines
    assert 'respool_requests_total{api="produce",version="3"} 1.0' in lines
    assert "respool_connections 5.0" in lines
    assert 'respool_request_seconds_bucket{api="fetch",le="0.1"} 0.0' in lines
    assert 'respool_request_seconds_bucket{api="fetch",le="1.0"} 1.0' in lines


def test_a_histogram_takes_many_at_once(metrics: PrometheusMetrics) -> None:
    histogram = metrics.histogram("respool_request_seconds", "Time.", buckets=(0.1, 1), api="fetch")
    histogram.observe(0.1)
    histogram.add([2, 0, 1], 5.5)
    with pytest.raises(ValueError, match="shorter"):
        histogram.add([2, 0], 5.5)
    lines = metrics.text().splitlines()
    assert [line for line in lines if "respool_request_seconds" in line and "#" not in line] == [
        'respool_request_seconds_bucket{api="fetch",le="0.1"} 3.0',
        'respool_request_seconds_bucket{api="fetch",le="1.0"} 3.0',
        'respool_request_seconds_bucket{api="fetch",le="+Inf"} 4.0',
        'respool_request_seconds_count{api="fetch"} 4.0',
        'respool_request_seconds_sum{api="fetch"} 5.6',
    ]


def test_histograms_share_no_name_with_others(metrics: PrometheusMetrics) -> None:
    first = metrics.histogram("a", "A.", buckets=(1,), x="1")
    assert metrics.histogram("a", "A.", buckets=(1,), x="1") is first
    assert metrics.histogram("a", "A.", buckets=(1,), x="2") is not first
    with pytest.raises(AssertionError, match="labels"):
        metrics.histogram("a", "A.", buckets=(1,), y="1")
    with pytest.raises(AssertionError, match="histogram already"):
        metrics.gauge("a", "A.")
    metrics.gauge("b", "B.")
    with pytest.raises(AssertionError, match="no histogram"):
        metrics.histogram("b", "B.", buckets=(1,))


def test_asking_twice_gives_the_same_instrument(metrics: PrometheusMetrics) -> None:
    assert metrics.counter("a_total", "A.", x="1") is metrics.counter("a_total", "A.", x="1")
    assert metrics.counter("a_total", "A.", x="1") is not metrics.counter("a_total", "A.", x="2")
    assert metrics.gauge("b", "B.") is metrics.gauge("b", "B.")


def test_one_name_is_one_kind_with_one_set_of_labels(metrics: PrometheusMetrics) -> None:
    metrics.counter("a_total", "A.", x="1")
    with pytest.raises(AssertionError, match="Counter already"):
        metrics.gauge("a_total", "A.", x="1")
    with pytest.raises(AssertionError, match="labels"):
        metrics.counter("a_total", "A.", y="1")


def test_two_brokers_in_one_process_count_apart() -> None:
    one, two = PrometheusMetrics(), PrometheusMetrics()
    one.counter("a_total", "A.").inc()
    two.counter("a_total", "A.")
    assert "a_total 1.0" in one.text()
    assert "a_total 0.0" in two.text()


def test_a_scrape_gets_the_numbers_and_those_of_the_process(metrics: PrometheusMetrics) -> None:
    metrics.counter("a_total", "A.").inc()
    port = metrics.serve("127.0.0.1", 0)
    text = scrape(port)
    assert "a_total 1.0" in text
    assert "process_open_fds" in text
    metrics.close()
    metrics.close()
    with pytest.raises(OSError, match="refused"):
        scrape(port)


def test_an_address_in_use_is_a_settings_error(metrics: PrometheusMetrics) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError, match=f"metrics_listen = 127.0.0.1:{port}.*in use"):
            metrics.serve("127.0.0.1", port)
    metrics.close()
