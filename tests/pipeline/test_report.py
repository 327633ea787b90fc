"""Reports: what is drawn of scores."""

from respool.pipeline.compare import BINS
from respool.pipeline.report import histogram_of


def test_a_score_that_is_no_number_is_left_out_of_the_histogram() -> None:
    found = histogram_of([0.0, None, float("nan"), 0.5, 1.0])
    assert sum(found) == 3
    assert (found[0], found[BINS // 2], found[-1]) == (1, 1, 1)
