"""A figure is the median of its rounds, with what was lowest and highest."""

import pytest
from bench.versus.figure import Figure


def test_a_figure_is_the_median_and_not_moved_by_one_bad_round() -> None:
    figure = Figure.of([10.0, 11.0, 500.0])
    assert (figure.median, figure.low, figure.high, figure.rounds) == (11.0, 10.0, 500.0, 3)


def test_the_spread_is_a_share_of_the_median() -> None:
    assert Figure.of([8.0, 10.0, 12.0]).spread == pytest.approx(0.4)
    assert Figure.of([7.0]).spread == 0.0
    assert Figure.of([0.0, 0.0]).spread == 0.0


def test_no_samples_are_no_figure() -> None:
    with pytest.raises(ValueError, match="no samples"):
        Figure.of([])
