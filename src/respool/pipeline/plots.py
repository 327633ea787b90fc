"""Plots as inline SVG: bars and lines, so that a report is one file without scripts or external fonts."""

from collections.abc import Sequence
from html import escape
from math import ceil, log10

WIDTH = 860
HEIGHT = 240
_LEFT, _RIGHT, _BOTTOM, _TOP = 70, 10, 30, 14
# The height of a panel of `lines`, and of its plot area.
_PANEL, _PANEL_LINE = 76, 52
_LEAST_BAR = 2.0
# The width of most glyphs in the report's font (12px), rounded up.
GLYPH_WIDTH = 7
# The longest name that fits beside its bar.
_NAME_MAX = 200 // GLYPH_WIDTH
COLOURS = ("#2b6cb0", "#dd6b20", "#2f855a", "#805ad5", "#b83280", "#718096")


def bars(values: Sequence[tuple[str, float]], *, unit: str = "") -> str:
    """Horizontal bars, each with its name and number."""
    most = max((value for _, value in values), default=0) or 1
    room = WIDTH - 330
    parts = []
    for row, (name, value) in enumerate(values):
        y = row * 24
        width = max(1.0, value / most * room)
        parts.append(
            f'<text x="200" y="{y + 15}" text-anchor="end">{escape(_short(name))}</text>'
            f'<rect x="208" y="{y + 3}" width="{width:.1f}" height="16" fill="{COLOURS[0]}"/>'
            f'<text x="{214 + width:.1f}" y="{y + 15}">{value:,.0f}{escape(unit)}</text>'
        )
    return _svg(parts, height=max(24, 24 * len(values)))


def lines(labels: Sequence[str], series: Sequence[tuple[str, Sequence[float]]]) -> str:
    """One panel for each series, with the same steps and scale; in a single panel, many lines would cross."""
    most = max((max(values, default=0) for _, values in series), default=0) or 1
    width, bottom = WIDTH - _LEFT - _RIGHT, _TOP + _PANEL * len(series)
    parts = []
    for number, (name, values) in enumerate(series):
        top = _TOP + number * _PANEL
        step = width / max(1, len(values) - 1)
        points = " ".join(
            f"{_LEFT + at * step:.1f},{top + _PANEL_LINE * (1 - value / most):.1f}"
            for at, value in enumerate(values)
        )
        parts.append(
            _axes(top, top + _PANEL_LINE)
            + _tick(top, f"{most:,.0f}")
            + _tick(top + _PANEL_LINE, "0")
            + f'<polyline points="{points}" fill="none" stroke="{_colour(number)}" stroke-width="1.6"/>'
            # Above the plot area, where no line is.
            + f'<text x="{_LEFT + 8}" y="{top - 3}">{escape(name)}</text>'
        )
    step = width / max(1, len(labels) - 1)
    parts.append(_below(labels, [_LEFT + at * step for at in range(len(labels))], bottom + 10))
    return _svg(parts, height=bottom + 20)


def columns(labels: Sequence[str], series: Sequence[tuple[str, Sequence[float]]]) -> str:
    """Vertical bars of counts on a logarithmic axis from 1 to a power of ten, grouped by label."""
    most = max((max(values, default=0) for _, values in series), default=0)
    # At least one decade, because the axis needs two different ends.
    decades = max(1, ceil(log10(most))) if most > 1 else 1
    width, height = WIDTH - _LEFT - _RIGHT, HEIGHT - _BOTTOM - _TOP
    bottom = _TOP + height
    slot = width / max(1, len(labels))
    bar = slot * 0.8 / max(1, len(series))
    parts = [_axes(_TOP, bottom)]
    parts += [
        _tick(bottom - height * power / decades, f"{10**power:,}") for power in range(decades + 1)
    ]
    for number, (name, values) in enumerate(series):
        for at, value in enumerate(values):
            # The axis begins at 1, so a count of 1 needs a visible bar; 0 is not on the axis.
            tall = max(_LEAST_BAR, height * log10(value) / decades) if value >= 1 else 0.0
            x = _LEFT + at * slot + slot * 0.1 + number * bar
            parts.append(
                f'<rect x="{x:.1f}" y="{bottom - tall:.1f}" width="{bar:.1f}" height="{tall:.1f}" '
                f'fill="{_colour(number)}"><title>{escape(name)} {escape(labels[at])}: {value:,.0f}</title></rect>'
            )
    centres = [_LEFT + (at + 0.5) * slot for at in range(len(labels))]
    parts.append(_below(labels, centres, HEIGHT - 10))
    return _legend([name for name, _ in series]) + _svg(parts)


def _axes(top: float, bottom: float) -> str:
    right = WIDTH - _RIGHT
    return (
        f'<line x1="{_LEFT}" y1="{top}" x2="{_LEFT}" y2="{bottom}" stroke="#a0aec0"/>'
        f'<line x1="{_LEFT}" y1="{bottom}" x2="{right}" y2="{bottom}" stroke="#a0aec0"/>'
    )


def _tick(y: float, text: str) -> str:
    return f'<text class="tick" x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'


def _below(labels: Sequence[str], places: Sequence[float], y: float) -> str:
    """As many labels as fit, each completely inside the picture."""
    widest = max(map(len, labels), default=1) * GLYPH_WIDTH
    room = max(1, int((WIDTH - _LEFT - _RIGHT) // (widest + 16)))
    every = max(1, -(-len(labels) // room))
    return "".join(
        f'<text x="{min(places[at], WIDTH - widest / 2):.1f}" y="{y}" text-anchor="middle">{escape(labels[at])}</text>'
        for at in range(0, len(labels), every)
    )


def _short(name: str) -> str:
    return name if len(name) <= _NAME_MAX else name[: _NAME_MAX - 1] + "…"


def _legend(names: Sequence[str]) -> str:
    shown = "".join(
        f'<span class="key"><i style="background:{_colour(number)}"></i>{escape(name)}</span>'
        for number, name in enumerate(names)
    )
    return f"<p>{shown}</p>"


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _svg(parts: Sequence[str], *, height: int = HEIGHT) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img">{"".join(parts)}</svg>'
