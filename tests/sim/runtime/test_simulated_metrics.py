import pytest

from respool.sim.runtime.simulated_metrics import SimMetrics


def test_instruments_are_told_apart_by_name_and_labels() -> None:
    metrics = SimMetrics()
    metrics.counter("requests_total", "Requests.", api="fetch").inc()
    metrics.counter("requests_total", "Requests.", api="fetch").inc(2)
    metrics.counter("requests_total", "Requests.", api="produce").inc()
    metrics.gauge("connections", "Connections.").set(5)
    metrics.histogram("request_seconds", "Time.", buckets=(0.1, 1)).observe(0.5)
    assert metrics.value("requests_total", api="fetch") == 3
    assert metrics.value("requests_total", api="produce") == 1
    assert metrics.value("requests_total", api="other") == 0
    assert metrics.value("connections") == 5
    assert metrics.observed("request_seconds") == [0.5]


def test_a_histogram_takes_many_at_once() -> None:
    metrics = SimMetrics()
    histogram = metrics.histogram("request_seconds", "Time.", buckets=(0.1, 1))
    histogram.add([1, 0, 2], 7.0)
    histogram.add([0, 1, 0], 0.5)
    assert (histogram.counts, histogram.total) == ([1, 1, 2], 7.5)
    assert metrics.counted("request_seconds") == 4
    assert metrics.counted("other") == 0


def test_a_counter_does_not_fall() -> None:
    metrics = SimMetrics()
    with pytest.raises(AssertionError):
        metrics.counter("requests_total", "Requests.").inc(-1)
    assert metrics.value("requests_total") == 0


def test_one_name_is_one_kind() -> None:
    metrics = SimMetrics()
    metrics.counter("requests_total", "Requests.")
    with pytest.raises(AssertionError):
        metrics.gauge("requests_total", "Requests.")
