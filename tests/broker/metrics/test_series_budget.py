import logging

import pytest

from respool.broker.metrics.series_budget import SeriesBudget, SeriesKind
from respool.broker.metrics.topic_series import SERIES_PER_TOPIC, TopicTraffics
from respool.model.name_filter import NameFilter

ALL = NameFilter(allow="*", deny="")


def test_what_was_admitted_stays_and_what_has_gone_makes_room() -> None:
    budget = SeriesBudget(10)
    assert budget.admit(SeriesKind.GROUP, "a", 6)
    assert not budget.admit(SeriesKind.GROUP, "b", 6)
    assert budget.admit(SeriesKind.PARTITION, "c", 4)
    assert budget.admit(SeriesKind.GROUP, "a", 6)
    # One more replica needs room too.
    assert not budget.admit(SeriesKind.PARTITION, "c", 6)
    budget.retain(SeriesKind.GROUP, {"b"})
    assert budget.admit(SeriesKind.GROUP, "b", 6)
    assert not budget.admit(SeriesKind.GROUP, "a", 6)


def test_the_operator_is_told_once_that_there_is_no_room(caplog: pytest.LogCaptureFixture) -> None:
    budget = SeriesBudget(0)
    with caplog.at_level(logging.WARNING):
        for name in ("a", "b"):
            assert not budget.admit(SeriesKind.TOPIC, name, 1)
    assert [one.levelname for one in caplog.records] == ["WARNING"]
    assert "metrics_series_max = 0 is reached" in caplog.text


def test_topics_beyond_the_bound_are_counted_together_for_good() -> None:
    budget = SeriesBudget(2 * SERIES_PER_TOPIC)
    traffics = TopicTraffics(ALL, budget)
    for name, count in (("a", 1), ("b", 2), ("c", 3), ("d", 4)):
        traffics.of(name).messages_in += count
    counted = {one.labels[0]: one.messages_in for one in traffics.all()}
    assert counted == {"a": 1, "b": 2, "(other)": 7}
    traffics.retain({"b", "c", "d"})
    assert budget.dropped[SeriesKind.TOPIC] == 2 * SERIES_PER_TOPIC
    # The place of one that has gone is for a topic to come. What was counted together never goes down.
    traffics.of("e").messages_in += 5
    counted = {one.labels[0]: one.messages_in for one in traffics.all()}
    assert counted == {"b": 2, "e": 5, "(other)": 7}


def test_topics_that_a_list_excludes_are_counted_together() -> None:
    traffics = TopicTraffics(NameFilter(allow="*", deny="__*"), SeriesBudget(100))
    traffics.of("__consumer_offsets").bytes_in += 9
    traffics.of("rides").bytes_in += 1
    assert {one.labels[0]: one.bytes_in for one in traffics.all()} == {"rides": 1, "(other)": 9}
