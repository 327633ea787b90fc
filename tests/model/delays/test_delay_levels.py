"""`respool.delay.levels`."""

import pytest

from respool.model.delays.delay_levels import DEFAULT_LEVELS, DelayLevels
from respool.model.errors import InvalidConfig


def test_default_levels_are_rocketmqs() -> None:
    assert len(DEFAULT_LEVELS.delays_ms) == 18
    assert DEFAULT_LEVELS.delays_ms[3] == 30_000
    assert DEFAULT_LEVELS.delays_ms[-1] == 7_200_000


def test_levels_are_written_as_they_were_given() -> None:
    levels = DelayLevels.parse("1s, 90m,2d")
    assert str(levels) == "1s,90m,2d"
    assert DelayLevels.parse(str(levels)) == levels
    assert levels.delays_ms == (1_000, 5_400_000, 172_800_000)


@pytest.mark.parametrize("text", ["", "1s,", "1s;2s", "10", "soon", "-1s", ",".join(["1s"] * 101)])
def test_malformed_levels_are_refused(text: str) -> None:
    with pytest.raises(InvalidConfig):
        DelayLevels.parse(text)


def test_rocketmqs_levels_with_spaces_are_not_one_level_of_their_sum() -> None:
    with pytest.raises(InvalidConfig, match="separated by commas"):
        DelayLevels.parse("1s 5s 10s 30s")
