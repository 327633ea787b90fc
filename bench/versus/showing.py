"""Numbers as text: three digits that matter, and a unit that keeps them short."""

from bench.versus.figure import Figure
from bench.versus.row import Unit


def number_text(value: float, unit: Unit) -> str:
    if unit is Unit.MESSAGES_PER_S:
        if value >= 1e6:
            return f"{value / 1e6:.2f} M"
        return f"{value / 1e3:,.0f} k" if value >= 1e4 else f"{value / 1e3:.1f} k"
    if value >= 100:
        return f"{value:,.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def figure_text(figure: Figure | None, unit: Unit) -> str:
    """The median, and from where to where the rounds went."""
    if figure is None:
        return "-"
    text = number_text(figure.median, unit)
    if figure.rounds == 1:
        return text
    return f"{text} ({number_text(figure.low, unit)} to {number_text(figure.high, unit)})"


def ratio_text(ratio: float | None) -> str:
    if ratio is None:
        return "-"
    return f"{ratio:.2f}x" if ratio < 10 else f"{ratio:,.0f}x"


def unit_text(unit: Unit) -> str:
    """With which side is better, where a reader may wonder."""
    return unit.value if unit.is_higher_better else f"{unit.value}, less is better"
