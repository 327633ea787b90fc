"""Instruments and collectors, and the text that Prometheus reads."""

from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from respool.drivers.prometheus_metrics import LINES_PER_PIECE, PrometheusMetrics
from respool.ports.metrics import Family, Sample


@pytest.fixture
def metrics() -> PrometheusMetrics:
    return PrometheusMetrics()


def test_instruments_are_shown_with_their_labels(metrics: PrometheusMetrics) -> None:
    metrics.counter("respool_requests_total", "Requests.", api="fetch", version="12").inc(3)
    metrics.counter("respool_requests_total", "Requests.", version="3", api="produce").inc()
    metrics.gauge("respool_connections", "Connections.").set(5)
    metrics.histogram("respool_request_seconds", "Time.", buckets=(0.1, 1), api="fetch").observe(
        0.5
    )
    lines = metrics.text().splitlines()
    assert 'respool_requests_total{api="fetch",version="12"} 3' in lines
    assert 'respool_requests_total{api="produce",version="3"} 1' in lines
    assert "respool_connections 5" in lines
    assert 'respool_request_seconds_bucket{api="fetch",le="0.1"} 0' in lines
    assert 'respool_request_seconds_bucket{api="fetch",le="1.0"} 1' in lines


def test_a_histogram_takes_many_at_once(metrics: PrometheusMetrics) -> None:
    histogram = metrics.histogram("respool_request_seconds", "Time.", buckets=(0.1, 1), api="fetch")
    histogram.observe(0.1)
    histogram.add([2, 0, 1], 5.5)
    with pytest.raises(ValueError, match="shorter"):
        histogram.add([2, 0], 5.5)
    lines = metrics.text().splitlines()
    assert [line for line in lines if "respool_request_seconds" in line and "#" not in line] == [
        'respool_request_seconds_bucket{api="fetch",le="0.1"} 3',
        'respool_request_seconds_bucket{api="fetch",le="1.0"} 3',
        'respool_request_seconds_bucket{api="fetch",le="+Inf"} 4',
        'respool_request_seconds_count{api="fetch"} 4',
        'respool_request_seconds_sum{api="fetch"} 5.6',
    ]


def test_histograms_share_no_name_with_others(metrics: PrometheusMetrics) -> None:
    first = metrics.histogram("a", "A.", buckets=(1,), x="1")
    assert metrics.histogram("a", "A.", buckets=(1,), x="1") is first
    assert metrics.histogram("a", "A.", buckets=(1,), x="2") is not first
    with pytest.raises(AssertionError, match="labels"):
        metrics.histogram("a", "A.", buckets=(1,), y="1")
    with pytest.raises(AssertionError, match="PrometheusHistogram already"):
        metrics.gauge("a", "A.")
    metrics.gauge("b", "B.")
    with pytest.raises(AssertionError, match="PrometheusGauge already"):
        metrics.histogram("b", "B.", buckets=(1,))


def test_asking_twice_gives_the_same_instrument(metrics: PrometheusMetrics) -> None:
    assert metrics.counter("a_total", "A.", x="1") is metrics.counter("a_total", "A.", x="1")
    assert metrics.counter("a_total", "A.", x="1") is not metrics.counter("a_total", "A.", x="2")
    assert metrics.gauge("b", "B.") is metrics.gauge("b", "B.")


def test_one_name_is_one_kind_with_one_set_of_labels(metrics: PrometheusMetrics) -> None:
    metrics.counter("a_total", "A.", x="1")
    with pytest.raises(AssertionError, match="PrometheusCounter already"):
        metrics.gauge("a_total", "A.", x="1")
    with pytest.raises(AssertionError, match="labels"):
        metrics.counter("a_total", "A.", y="1")


def test_two_brokers_in_one_process_count_apart() -> None:
    one, two = PrometheusMetrics(), PrometheusMetrics()
    one.counter("a_total", "A.").inc()
    two.counter("a_total", "A.")
    assert "a_total 1" in one.text()
    assert "a_total 0" in two.text()


def test_the_process_is_among_the_numbers(metrics: PrometheusMetrics) -> None:
    assert "process_open_fds" in metrics.text()


def test_a_collector_is_read_at_each_scrape(metrics: PrometheusMetrics) -> None:
    sizes = {"rides": 1}

    def collect() -> Iterator[Family]:
        samples = [((name,), size) for name, size in sizes.items()]
        yield Family("respool_topic_size_bytes", "gauge", "Size.", ("topic",), samples)
        yield Family("respool_nothing", "gauge", "No samples.", ("topic",), ())

    metrics.add_collector(collect)
    assert 'respool_topic_size_bytes{topic="rides"} 1' in metrics.text().splitlines()
    sizes["rides"], sizes["fares"] = 2, 7
    lines = metrics.text().splitlines()
    assert 'respool_topic_size_bytes{topic="rides"} 2' in lines
    assert 'respool_topic_size_bytes{topic="fares"} 7' in lines
    # A family without samples is announced all the same: dashboards find its name.
    assert "# TYPE respool_nothing gauge" in lines


def test_hostile_label_values_are_escaped(metrics: PrometheusMetrics) -> None:
    hostile = 'a"} 1\nrespool_fake 7\\'
    metrics.counter("a_total", "Help with a\nnew line.", group=hostile).inc(2)
    (family,) = (one for one in text_string_to_metric_families(metrics.text()) if one.name == "a")
    (sample,) = family.samples
    assert sample.labels == {"group": hostile}
    assert sample.value == 2
    assert "respool_fake 7" not in metrics.text().splitlines()


def test_values_that_are_no_numbers_are_written_as_prometheus_reads_them(
    metrics: PrometheusMetrics,
) -> None:
    for name, value in (("a", float("inf")), ("b", float("-inf")), ("c", float("nan")), ("d", 0.5)):
        metrics.gauge(name, "?").set(value)
    lines = metrics.text().splitlines()
    assert [one for one in lines if one[:2] in ("a ", "b ", "c ", "d ")] == [
        "a +Inf",
        "b -Inf",
        "c NaN",
        "d 0.5",
    ]


def test_the_text_comes_in_pieces_of_bounded_work(metrics: PrometheusMetrics) -> None:
    read = 0

    def samples() -> Iterator[Sample]:
        nonlocal read
        for number in range(10 * LINES_PER_PIECE):
            read += 1
            yield (str(number),), number

    metrics.add_collector(lambda: [Family("many", "gauge", "Many.", ("number",), samples())])
    before = 0
    for _ in metrics.pieces():
        assert read - before <= LINES_PER_PIECE
        before = read
    assert read == 10 * LINES_PER_PIECE
