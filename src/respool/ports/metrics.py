"""Numbers for the operator. Names follow Prometheus: a unit and `_total` at the end of counters."""

from collections.abc import Sequence
from typing import Protocol


class Counter(Protocol):
    def inc(self, amount: float = 1) -> None: ...


class Gauge(Protocol):
    def set(self, value: float) -> None: ...


class Histogram(Protocol):
    def observe(self, value: float) -> None: ...

    def add(self, counts: Sequence[int], total: float) -> None:
        """Many at once, counted elsewhere: how many fell into each bucket, and their sum.

        There is one more count than there are bounds: of those beyond the last. A value that equals a bound is in that
        bound's bucket.
        """
        ...


class Metrics(Protocol):
    """Makes the instruments. Asking twice for one name and labels gives the same instrument, so keep it."""

    def counter(self, name: str, help_text: str, **labels: str) -> Counter: ...

    def gauge(self, name: str, help_text: str, **labels: str) -> Gauge: ...

    def histogram(
        self, name: str, help_text: str, *, buckets: tuple[float, ...], **labels: str
    ) -> Histogram: ...
