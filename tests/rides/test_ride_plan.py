from typing import Any

import pytest

from respool.rides.cities import CITIES, BadPlan, cities_from
from rides.making import plan


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, "either a rate or a count"),
        ({"rate": 1.0, "count": 5}, "either a rate or a count"),
        ({"rate": 0.0}, "a rate of 0 events per second"),
        ({"count": 0}, "a count of 0 events"),
        ({"rate": 1.0, "days": 0.01}, "a history of 0.01 days: it is an hour"),
        ({"rate": 1.0, "days": 400}, "a history of 400 days"),
        ({"rate": 1.0, "late_share": 0.6}, "a late share of 0.6: it is 0 to 0.5"),
        ({"rate": 1.0, "fraud_share": -0.1}, "a fraud share of -0.1"),
        ({"rate": 1.0, "drivers": 3}, "3 drivers: each of 12 cities needs one"),
        ({"rate": 1.0, "cities": ()}, "at least one city"),
    ],
)
def test_a_plan_that_cannot_be_says_what_can(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(BadPlan, match=words):
        plan(**changed)


def test_cities_are_named_or_numbered() -> None:
    assert cities_from("3") == CITIES[:3]
    assert [city.name for city in cities_from("bonn, KÖLN")] == ["Bonn", "Köln"]


@pytest.mark.parametrize("text", ["0", "13", "Atlantis", "Bonn,bonn", ""])
def test_cities_that_are_not_there_are_refused(text: str) -> None:
    with pytest.raises(BadPlan):
        cities_from(text)


def test_cities_stand_in_json_as_they_are() -> None:
    """The kernel copies names between quotes."""
    assert all(city.name.isprintable() and not set(city.name) & set('"\\') for city in CITIES)
