"""Metrics for Prometheus: `ports.metrics` as plain numbers, and their text (exposition format 0.0.4).

Instruments belong to the event loop's thread and take no locks. The text is generated in pieces, so that the event loop
can run in between. prometheus_client is used for process metrics only: its text of 20,000 series takes ten times as
long, in one piece.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

from respool.ports.metrics import Collector, Sample

# Lines per piece: about 100 us, or more if a line is a sum over partitions.
LINES_PER_PIECE = 50
# Label texts cached between scrapes, up to this many.
LABEL_TEXTS_MAX = 200_000

_LABEL_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})


class PrometheusMetrics:
    """Creates instruments, and renders them as text."""

    def __init__(self) -> None:
        self._process = CollectorRegistry()
        # Memory, CPU, file descriptors and start time of this process.
        ProcessCollector(registry=self._process)
        self._process_text = b""
        self._families: dict[str, _Instruments] = {}
        self._collectors: list[Collector] = []
        self._label_texts = _LabelTexts()

    def counter(self, name: str, help_text: str, **labels: str) -> "PrometheusCounter":
        return self._get(PrometheusCounter, name, help_text, labels)

    def gauge(self, name: str, help_text: str, **labels: str) -> "PrometheusGauge":
        return self._get(PrometheusGauge, name, help_text, labels)

    def histogram(
        self, name: str, help_text: str, *, buckets: tuple[float, ...], **labels: str
    ) -> "PrometheusHistogram":
        assert list(buckets) == sorted(buckets)
        return self._get(PrometheusHistogram, name, help_text, labels, bounds=buckets)

    def add_collector(self, collect: Collector) -> None:
        self._collectors.append(collect)

    def pieces(self) -> Iterator[bytes]:
        """The text of a scrape in pieces. Values are read when their piece is generated."""
        for name, family in tuple(self._families.items()):
            yield _head(name, family.help_text, family.kind.KIND)
            yield from _in_pieces(family.lines(name, self._label_texts))
        for collect in self._collectors:
            for collected in collect():
                yield _head(collected.name, collected.help_text, collected.kind)
                texts = self._label_texts.of(collected.label_names)
                yield from _in_pieces(_lines(collected.name, collected.samples, texts))
        yield self._process_text

    def read_process(self) -> None:
        """Read the process metrics. Off the event loop: with thousands of open files it takes milliseconds."""
        self._process_text = generate_latest(self._process)

    def text(self) -> str:
        """The whole text of a scrape."""
        self.read_process()
        return b"".join(self.pieces()).decode()

    def _get(
        self,
        kind: "type[Kind]",
        name: str,
        help_text: str,
        labels: Mapping[str, str],
        *,
        bounds: tuple[float, ...] = (),
    ) -> "Kind":
        names = tuple(sorted(labels))
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = _Instruments(kind, help_text, names, bounds)
        assert family.kind is kind, f"{name} is a {family.kind.__name__} already"
        assert family.label_names == names, f"{name} has the labels {family.label_names}"
        values = tuple(labels[one] for one in names)
        found = family.instruments.get(values)
        if found is None:
            found = family.instruments[values] = kind(family.bounds)
        assert isinstance(found, kind)
        return found


class PrometheusCounter:
    KIND = "counter"
    __slots__ = ("value",)

    def __init__(self, bounds: tuple[float, ...] = ()) -> None:
        del bounds
        self.value: float = 0

    def inc(self, amount: float = 1) -> None:
        assert amount >= 0, f"a counter cannot decrease by {amount}"
        self.value += amount


class PrometheusGauge:
    KIND = "gauge"
    __slots__ = ("value",)

    def __init__(self, bounds: tuple[float, ...] = ()) -> None:
        del bounds
        self.value: float = 0

    def set(self, value: float) -> None:
        self.value = value


class PrometheusHistogram:
    KIND = "histogram"
    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        # One more than bounds, for values above the last bound.
        self.counts = [0] * (len(bounds) + 1)
        self.total: float = 0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def add(self, counts: Sequence[int], total: float) -> None:
        self.counts = [old + new for old, new in zip(self.counts, counts, strict=True)]
        self.total += total


Instrument = PrometheusCounter | PrometheusGauge | PrometheusHistogram
Kind = TypeVar("Kind", PrometheusCounter, PrometheusGauge, PrometheusHistogram)


class _Instruments:
    """All instruments of one name, by label values."""

    __slots__ = ("bounds", "help_text", "instruments", "kind", "label_names")

    def __init__(
        self,
        kind: type[Instrument],
        help_text: str,
        label_names: tuple[str, ...],
        bounds: tuple[float, ...],
    ) -> None:
        self.kind = kind
        self.help_text = help_text
        self.label_names = label_names
        self.bounds = bounds
        self.instruments: dict[tuple[str, ...], Instrument] = {}

    def lines(self, name: str, label_texts: "_LabelTexts") -> Iterator[str]:
        texts = label_texts.of(self.label_names)
        bound_names = [*map(str, map(float, self.bounds)), "+Inf"]
        for values, one in tuple(self.instruments.items()):
            labels = texts[values]
            if not isinstance(one, PrometheusHistogram):
                yield _line(name, labels, one.value)
                continue
            comma = "," if labels else ""
            # Buckets are cumulative.
            counts = list(accumulate(one.counts))
            for bound, count in zip(bound_names, counts, strict=True):
                yield _line(f"{name}_bucket", f'{labels}{comma}le="{bound}"', count)
            yield _line(f"{name}_count", labels, counts[-1])
            yield _line(f"{name}_sum", labels, one.total)


class _LabelTexts:
    """Label values, by label names -> `topic="rides",partition="0"`."""

    def __init__(self) -> None:
        self._by_names: dict[tuple[str, ...], _TextsOfNames] = {}

    def of(self, names: tuple[str, ...]) -> "_TextsOfNames":
        found = self._by_names.get(names)
        if found is None or len(found) > LABEL_TEXTS_MAX:
            # Names come and go; instead of searching for unused ones, start over.
            found = self._by_names[names] = _TextsOfNames(names)
        return found


class _TextsOfNames(dict[tuple[str, ...], str]):
    __slots__ = ("_names",)

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__()
        self._names = names

    def __missing__(self, values: tuple[str, ...]) -> str:
        text = self[values] = ",".join(
            f'{name}="{value.translate(_LABEL_ESCAPES)}"'
            for name, value in zip(self._names, values, strict=True)
        )
        return text


def _head(name: str, help_text: str, kind: str) -> bytes:
    escaped = help_text.translate(_HELP_ESCAPES)
    return f"# HELP {name} {escaped}\n# TYPE {name} {kind}\n".encode()


def _lines(name: str, samples: Iterable[Sample], texts: _TextsOfNames) -> Iterator[str]:
    for values, value in samples:
        yield _line(name, texts[values], value)


def _line(name: str, labels: str, value: float) -> str:
    # The value's type determines the text: an int stays one, a bool becomes 0 or 1.
    number = value if type(value) is int else _number(value)
    return f"{name}{{{labels}}} {number}\n" if labels else f"{name} {number}\n"


def _number(value: float) -> str:
    if value != value:  # noqa: PLR0124 - the one value that is not itself
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value))


def _in_pieces(lines: Iterator[str]) -> Iterator[bytes]:
    piece: list[str] = []
    for line in lines:
        piece.append(line)
        if len(piece) == LINES_PER_PIECE:
            yield "".join(piece).encode(errors="replace")
            piece.clear()
    if piece:
        yield "".join(piece).encode(errors="replace")
