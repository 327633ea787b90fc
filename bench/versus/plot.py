"""Plots as SVG, written by hand: a family's rows as bars, and all rows as advantages on a scale of powers of two."""

from collections.abc import Iterator, Sequence
from html import escape
from math import log2

from bench.versus.contender import KAFKA, RESPOOL, RESPOOL_SYNCED
from bench.versus.row import Row
from bench.versus.showing import number_text, ratio_text, unit_text

COLOURS = {RESPOOL: "#2a7f9e", KAFKA: "#c9762b", RESPOOL_SYNCED: "#8fc1d4"}
OTHER_COLOURS = ("#7a6fae", "#b05a7a", "#6f8f4e")
WIDTH = 1_000
LABEL_WIDTH = 440
LABEL_LETTERS_MAX = 76
VALUE_WIDTH = 90
BAR = 13
GAP = 14
HEAD = 60
TEXT = 'font-family="sans-serif" font-size="11"'
# Beyond this ratio the bar is shortened; its number is exact.
TIMES_MAX = 32.0


def bars(title: str, rows: Sequence[Row]) -> str:
    """Every row on a scale of its own, as units differ: the longest bar is the row's largest figure."""
    names = list(dict.fromkeys(name for row in rows for name in row.samples))
    colours = _colours(names)
    lines: list[str] = []
    y = HEAD
    for row in rows:
        figures = {name: row.figure(name) for name in names}
        medians = {name: one.median for name, one in figures.items() if one is not None}
        middle = y + len(medians) * BAR / 2 + 4
        lines.append(_text(LABEL_WIDTH - 10, middle, row.name, anchor="end"))
        largest = max(medians.values()) or 1.0
        for name, value in medians.items():
            width = (WIDTH - LABEL_WIDTH - VALUE_WIDTH) * value / largest
            lines.append(_bar(LABEL_WIDTH, y, width, colours[name]))
            lines.append(_text(LABEL_WIDTH + width + 5, y + BAR - 3, number_text(value, row.unit)))
            y += BAR
        y += GAP
    units = ", ".join(dict.fromkeys(unit_text(row.unit) for row in rows))
    return _svg(y, [_title(f"{title} ({units})"), *_legend(colours), *lines])


def advantages(title: str, rows: Sequence[Row]) -> str:
    """To the right Respool is better, to the left Kafka; each line is twice the one before."""
    found = [(row, row.advantage()) for row in rows]
    shown = [(row, value) for row, value in found if value]
    middle = LABEL_WIDTH + (WIDTH - LABEL_WIDTH) / 2
    per_double = (WIDTH - LABEL_WIDTH - VALUE_WIDTH) / 2 / log2(TIMES_MAX)
    height = HEAD + len(shown) * (BAR + 4) + GAP
    lines = list(_scale(middle, per_double, height))
    y = HEAD
    for row, value in shown:
        width = per_double * log2(min(TIMES_MAX, max(1 / TIMES_MAX, value)))
        colour = COLOURS[RESPOOL] if value >= 1 else COLOURS[KAFKA]
        lines.append(_text(LABEL_WIDTH - 10, y + BAR - 3, _label(row), "end"))
        lines.append(_bar(min(middle, middle + width), y, abs(width), colour))
        text = ratio_text(max(value, 1 / value))
        at = middle + width + (5 if value >= 1 else -5)
        lines.append(_text(at, y + BAR - 3, text, "start" if value >= 1 else "end"))
        y += BAR + 4
    sides = {"Respool is better": COLOURS[RESPOOL], "Kafka is better": COLOURS[KAFKA]}
    return _svg(height, [_title(title), *_legend(sides), *lines])


def _scale(middle: float, per_double: float, height: float) -> Iterator[str]:
    for power in range(-int(log2(TIMES_MAX)), int(log2(TIMES_MAX)) + 1):
        x = middle + power * per_double
        width = 1.5 if power == 0 else 0.5
        yield (
            f'<line x1="{x:.1f}" y1="{HEAD - 6}" x2="{x:.1f}" y2="{height - GAP:.1f}" '
            f'stroke="#999" stroke-width="{width}"/>'
        )


def _label(row: Row) -> str:
    return f"{row.family}: {row.name}"[:LABEL_LETTERS_MAX]


def _colours(names: Sequence[str]) -> dict[str, str]:
    others = [name for name in names if name not in COLOURS]
    spare = dict(zip(others, OTHER_COLOURS * (1 + len(others) // 3), strict=False))
    return {name: COLOURS.get(name) or spare[name] for name in names}


def _legend(colours: dict[str, str]) -> Iterator[str]:
    x = float(LABEL_WIDTH)
    for name, colour in colours.items():
        yield f'<rect x="{x:.1f}" y="32" width="12" height="12" fill="{colour}"/>'
        yield _text(x + 17, 42, name)
        x += 40 + 7 * len(name)


def _title(text: str) -> str:
    return f'<text x="10" y="20" font-family="sans-serif" font-size="14" font-weight="bold">{escape(text)}</text>'


def _bar(x: float, y: float, width: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{BAR - 2}" fill="{colour}"/>'


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {TEXT} text-anchor="{anchor}">{escape(text)}</text>'


def _svg(height: float, lines: Sequence[str]) -> str:
    body = "\n".join(lines)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" '
        f'viewBox="0 0 {WIDTH} {height:.0f}">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )
