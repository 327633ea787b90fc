"""Plots as inline SVG: bars and lines, drawn here, so that a report is one file without scripts or fonts of others."""

from collections.abc import Sequence
from html import escape

WIDTH = 860
HEIGHT = 240
_LEFT, _BOTTOM, _TOP = 70, 30, 14
COLOURS = ("#2b6cb0", "#dd6b20", "#2f855a", "#805ad5", "#b83280", "#718096")


def bars(values: Sequence[tuple[str, float]], *, unit: str = "") -> str:
    """Lying bars, each with its name and its number."""
    most = max((value for _, value in values), default=0) or 1
    room = WIDTH - 330
    parts = []
    for row, (name, value) in enumerate(values):
        y = row * 24
        width = max(1.0, value / most * room)
        parts.append(
            f'<text x="200" y="{y + 15}" text-anchor="end">{escape(name)}</text>'
            f'<rect x="208" y="{y + 3}" width="{width:.1f}" height="16" fill="{COLOURS[0]}"/>'
            f'<text x="{214 + width:.1f}" y="{y + 15}">{value:,.0f}{escape(unit)}</text>'
        )
    return _svg(parts, height=max(24, 24 * len(values)))


def lines(labels: Sequence[str], series: Sequence[tuple[str, Sequence[float]]]) -> str:
    """One line for each series, over the same steps."""
    most = max((max(values, default=0) for _, values in series), default=0) or 1
    width, height = WIDTH - _LEFT - 10, HEIGHT - _BOTTOM - _TOP
    parts = [_axis(most)]
    for number, (_name, values) in enumerate(series):
        step = width / max(1, len(values) - 1)
        points = " ".join(
            f"{_LEFT + at * step:.1f},{_TOP + height * (1 - value / most):.1f}"
            for at, value in enumerate(values)
        )
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{_colour(number)}" stroke-width="1.6"/>'
        )
    parts.append(_below(labels, width))
    return _legend([name for name, _ in series]) + _svg(parts)


def columns(labels: Sequence[str], series: Sequence[tuple[str, Sequence[float]]]) -> str:
    """Standing bars, those of one label side by side. Heights are of the logarithm: the few are what matters."""
    from math import log10

    most = max((max(values, default=0) for _, values in series), default=0) or 1
    top = log10(most + 1)
    width, height = WIDTH - _LEFT - 10, HEIGHT - _BOTTOM - _TOP
    slot = width / max(1, len(labels))
    bar = slot * 0.8 / max(1, len(series))
    parts = [_axis(most, is_log=True)]
    for number, (name, values) in enumerate(series):
        for at, value in enumerate(values):
            tall = height * log10(value + 1) / top
            x = _LEFT + at * slot + number * bar
            parts.append(
                f'<rect x="{x:.1f}" y="{_TOP + height - tall:.1f}" width="{bar:.1f}" height="{tall:.1f}" '
                f'fill="{_colour(number)}"><title>{escape(name)} {escape(labels[at])}: {value:,.0f}</title></rect>'
            )
    parts.append(_below(labels, width))
    return _legend([name for name, _ in series]) + _svg(parts)


def _axis(most: float, *, is_log: bool = False) -> str:
    bottom = HEIGHT - _BOTTOM
    note = " (log)" if is_log else ""
    return (
        f'<line x1="{_LEFT}" y1="{_TOP}" x2="{_LEFT}" y2="{bottom}" stroke="#a0aec0"/>'
        f'<line x1="{_LEFT}" y1="{bottom}" x2="{WIDTH}" y2="{bottom}" stroke="#a0aec0"/>'
        f'<text x="{_LEFT - 6}" y="{_TOP + 10}" text-anchor="end">{most:,.0f}{note}</text>'
        f'<text x="{_LEFT - 6}" y="{bottom}" text-anchor="end">0</text>'
    )


def _below(labels: Sequence[str], width: float) -> str:
    """Some of the labels, as many as have room."""
    every = max(1, len(labels) // 8)
    step = width / max(1, len(labels) - 1)
    return "".join(
        f'<text x="{_LEFT + at * step:.1f}" y="{HEIGHT - 10}" text-anchor="middle">{escape(labels[at])}</text>'
        for at in range(0, len(labels), every)
    )


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
