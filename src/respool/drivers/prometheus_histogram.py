"""Histograms that take many values at once. The library's own take them one by one, at some microseconds each."""

import threading
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector


class HistogramFamily(Collector):
    """All histograms of one name, by their labels."""

    def __init__(
        self, name: str, help_text: str, *, label_names: Sequence[str], bounds: Sequence[float]
    ) -> None:
        assert list(bounds) == sorted(bounds)
        self._name = name
        self._help_text = help_text
        self._label_names = tuple(label_names)
        self._bounds = tuple(bounds)
        self._names = [*map(str, map(float, bounds)), "+Inf"]
        # A scrape comes from a thread of its own.
        self._lock = threading.Lock()
        self._histograms: dict[tuple[str, ...], Histogram] = {}

    def get(self, labels: Mapping[str, str]) -> "Histogram":
        names = tuple(sorted(labels))
        assert names == self._label_names, f"{self._name} has the labels {self._label_names}"
        values = tuple(labels[name] for name in names)
        with self._lock:
            return self._histograms.setdefault(values, Histogram(self._bounds, self._lock))

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(self._name, self._help_text, labels=self._label_names)
        with self._lock:
            for values, histogram in self._histograms.items():
                # Each bucket holds those below it too.
                counts = list(accumulate(histogram.counts))
                buckets = list(zip(self._names, counts, strict=True))
                family.add_metric(values, buckets, histogram.total)
        yield family


class Histogram:
    def __init__(self, bounds: tuple[float, ...], lock: threading.Lock) -> None:
        self._bounds = bounds
        self._lock = lock
        # One more than there are bounds: for what lies beyond the last.
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        with self._lock:
            self.counts[bisect_left(self._bounds, value)] += 1
            self.total += value

    def add(self, counts: Sequence[int], total: float) -> None:
        with self._lock:
            self.counts = [old + new for old, new in zip(self.counts, counts, strict=True)]
            self.total += total
