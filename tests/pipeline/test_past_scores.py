"""Which models a window may be replayed with."""

import pytest

from respool.pipeline.jobs import BadReplay
from respool.pipeline.model import About
from respool.pipeline.past_scores import check_unseen

DAY_MS = 86_400_000


def about(trained_until_ms: int) -> About:
    return About(
        name="v2",
        recipe="forest",
        features=(),
        trained_until_ms=trained_until_ms,
        rides=9,
        frauds=1,
    )


def test_a_model_is_not_measured_by_rides_it_was_trained_on() -> None:
    with pytest.raises(BadReplay, match=r"'v2' was trained on .* first 1\.5 days.*--new-model"):
        check_unseen(about(10 * DAY_MS), round(8.5 * DAY_MS))


def test_a_model_trained_up_to_the_window_is_measured_by_it() -> None:
    check_unseen(about(10 * DAY_MS), 10 * DAY_MS)
