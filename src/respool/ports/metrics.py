"""Metrics for the operator. Names follow Prometheus: base units, counters end with `_total`.

There are two ways to publish a number:

- Events are counted by an instrument (`counter`, `gauge`, `histogram`).
- State that exists anyway is read at each scrape: `add_collector`.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple, Protocol, TypeAlias


class Counter(Protocol):
    def inc(self, amount: float = 1) -> None: ...


class Gauge(Protocol):
    def set(self, value: float) -> None: ...


class Histogram(Protocol):
    def observe(self, value: float) -> None: ...

    def add(self, counts: Sequence[int], total: float) -> None:
        """Add many observations counted elsewhere: a count per bucket, and their sum.

        There is one more count than bounds, for values above the last bound. A value equal to a bound is in that
        bound's bucket.
        """
        ...


# The label values, in the order of the family's labels, and the value.
Sample: TypeAlias = tuple[tuple[str, ...], float]


class Family(NamedTuple):
    """All series of one name, as yielded by a collector."""

    name: str
    kind: Literal["counter", "gauge"]
    help_text: str
    label_names: tuple[str, ...]
    # Read once, a few at a time, before the next family is requested. The event loop runs in between, so a generator
    # must not iterate over a dict that may change.
    samples: Iterable[Sample]


Collector: TypeAlias = Callable[[], Iterable[Family]]


class Metrics(Protocol):
    """Creates instruments. The same name and labels give the same instrument, so keep it."""

    def counter(self, name: str, help_text: str, **labels: str) -> Counter: ...

    def gauge(self, name: str, help_text: str, **labels: str) -> Gauge: ...

    def histogram(
        self, name: str, help_text: str, *, buckets: tuple[float, ...], **labels: str
    ) -> Histogram: ...

    def add_collector(self, collect: Collector) -> None:
        """Call `collect` at each scrape, for series whose values are kept elsewhere.

        It yields each of its families every time, also those without samples.
        """
        ...
