"""The levels of Python's loggers under Kafka's names."""

import logging
from collections.abc import Iterator

import pytest

from respool.drivers.python_log_levels import PythonLogLevels
from respool.ports.log_levels import LEVELS, ROOT

HIGH, MIDDLE, LOW = "respool.made_up", "respool.made_up.by", "respool.made_up.by.a_test"


@pytest.fixture(autouse=True)
def loggers() -> Iterator[None]:
    root = logging.root.level
    logging.getLogger(HIGH)
    # Nothing logs as MIDDLE itself.
    logging.getLogger(LOW)
    yield
    logging.root.setLevel(root)
    for name in (HIGH, LOW):
        logging.getLogger(name).setLevel(logging.NOTSET)


def test_loggers_of_respool_and_their_packages_are_listed_with_the_level_in_force() -> None:
    logging.getLogger("some.library")
    levels = PythonLogLevels()
    levels.set_level(ROOT, "WARN")
    found = levels.levels()
    assert {HIGH, MIDDLE, LOW, ROOT, "respool"} <= set(found)
    assert "some.library" not in found
    assert [found[name] for name in (ROOT, HIGH, MIDDLE, LOW)] == ["WARN"] * 4


def test_a_level_is_for_everything_below_that_has_none_of_its_own() -> None:
    levels = PythonLogLevels()
    levels.set_level(ROOT, "ERROR")
    levels.set_level(HIGH, "DEBUG")
    assert [levels.levels()[name] for name in (ROOT, HIGH, MIDDLE, LOW)] == [
        "ERROR",
        "DEBUG",
        "DEBUG",
        "DEBUG",
    ]
    levels.set_level(MIDDLE, "OFF")
    assert levels.levels()[LOW] == "OFF"
    assert not logging.getLogger(LOW).isEnabledFor(logging.CRITICAL)
    levels.set_level(MIDDLE, None)
    levels.set_level(HIGH, None)
    assert levels.levels()[LOW] == "ERROR"


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_is_told_as_it_was_set(level: str) -> None:
    levels = PythonLogLevels()
    levels.set_level(HIGH, level)
    assert levels.levels()[HIGH] == level


def test_asking_creates_no_loggers() -> None:
    before = set(logging.root.manager.loggerDict)
    PythonLogLevels().levels()
    assert set(logging.root.manager.loggerDict) == before
