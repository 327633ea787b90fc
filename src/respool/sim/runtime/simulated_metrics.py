"""Metrics kept in memory, for tests to read."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from respool.ports.metrics import Collector


@dataclass(slots=True)
class SimCounter:
    value: float = 0

    def inc(self, amount: float = 1) -> None:
        assert amount >= 0, f"a counter only grows, not by {amount}"
        self.value += amount


@dataclass(slots=True)
class SimGauge:
    value: float = 0

    def set(self, value: float) -> None:
        self.value = value


@dataclass(slots=True)
class SimHistogram:
    values: list[float] = field(default_factory=list)
    # Bucket counts of values that were counted elsewhere.
    counts: list[int] = field(default_factory=list)
    total: float = 0

    def observe(self, value: float) -> None:
        self.values.append(value)

    def add(self, counts: Sequence[int], total: float) -> None:
        before = self.counts or [0] * len(counts)
        self.counts = [old + new for old, new in zip(before, counts, strict=True)]
        self.total += total


Instrument = SimCounter | SimGauge | SimHistogram
Kind = TypeVar("Kind", bound=Instrument)


class SimMetrics:
    """A `ports.metrics.Metrics`."""

    def __init__(self) -> None:
        self._instruments: dict[tuple[str, tuple[tuple[str, str], ...]], Instrument] = {}
        self._collectors: list[Collector] = []

    def counter(self, name: str, help_text: str, **labels: str) -> SimCounter:
        assert help_text
        return self._get(SimCounter, name, labels)

    def gauge(self, name: str, help_text: str, **labels: str) -> SimGauge:
        assert help_text
        return self._get(SimGauge, name, labels)

    def histogram(
        self, name: str, help_text: str, *, buckets: tuple[float, ...], **labels: str
    ) -> SimHistogram:
        assert help_text
        assert list(buckets) == sorted(buckets)
        return self._get(SimHistogram, name, labels)

    def add_collector(self, collect: Collector) -> None:
        self._collectors.append(collect)

    def collected(self, name: str) -> dict[tuple[str, ...], float]:
        """Return what a scrape would read for a collector's metric family, keyed by label values."""
        # Run all collectors in their order, as a scrape does.
        families = {
            one.name: dict(one.samples) for collect in self._collectors for one in collect()
        }
        return families[name]

    def value(self, name: str, **labels: str) -> float:
        """The value of a counter or gauge; 0 if it does not exist yet."""
        found = self._instruments.get(_key(name, labels))
        assert not isinstance(found, SimHistogram), f"{name} is a histogram"
        return 0 if found is None else found.value

    def counted(self, name: str, **labels: str) -> int:
        """How many values were added to a histogram in bulk."""
        found = self._instruments.get(_key(name, labels))
        assert found is None or isinstance(found, SimHistogram), f"{name} is no histogram"
        return 0 if found is None else sum(found.counts)

    def observed(self, name: str, **labels: str) -> list[float]:
        """All values that a histogram observed one by one."""
        found = self._instruments.get(_key(name, labels))
        assert found is None or isinstance(found, SimHistogram), f"{name} is no histogram"
        return [] if found is None else found.values

    def _get(self, kind: type[Kind], name: str, labels: dict[str, str]) -> Kind:
        found = self._instruments.setdefault(_key(name, labels), kind())
        assert isinstance(found, kind), f"{name} is a {type(found).__name__} already"
        return found


def _key(name: str, labels: dict[str, str]) -> tuple[str, tuple[tuple[str, str], ...]]:
    return name, tuple(sorted(labels.items()))
