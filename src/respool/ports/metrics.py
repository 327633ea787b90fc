"""Numbers for the operator. Names follow Prometheus: base units, and `_total` at the end of counters.

There are two ways to publish a number:

- What is counted as it happens has an instrument (`counter`, `gauge`, `histogram`).
- What is known anyway, as plain numbers of some object, is read at each scrape: `add_collector`.
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
        """Many at once, counted elsewhere: how many fell into each bucket, and their sum.

        There is one more count than there are bounds: of those beyond the last. A value that equals a bound is in that
        bound's bucket.
        """
        ...


# The values of the family's labels, in their order, and the value.
Sample: TypeAlias = tuple[tuple[str, ...], float]


class Family(NamedTuple):
    """All series of one name, as a collector yields them."""

    name: str
    kind: Literal["counter", "gauge"]
    help_text: str
    label_names: tuple[str, ...]
    # Read once, a few at a time, before the next family is asked for. The loop turns in between, so a generator must
    # not walk a dict that may change.
    samples: Iterable[Sample]


Collector: TypeAlias = Callable[[], Iterable[Family]]


class Metrics(Protocol):
    """Makes the instruments. Asking twice for one name and labels gives the same instrument, so keep it."""

    def counter(self, name: str, help_text: str, **labels: str) -> Counter: ...

    def gauge(self, name: str, help_text: str, **labels: str) -> Gauge: ...

    def histogram(
        self, name: str, help_text: str, *, buckets: tuple[float, ...], **labels: str
    ) -> Histogram: ...

    def add_collector(self, collect: Collector) -> None:
        """Call `collect` at each scrape, for series whose values live elsewhere.

        It yields each of its families every time, also one without samples.
        """
        ...
