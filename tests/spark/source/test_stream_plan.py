"""What a micro-batch reads, from a checkpoint and what brokers show: nothing twice, nothing passed over silently."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.spark.source.loss import DataLost, Loss
from respool.spark.source.splits import Range
from respool.spark.source.stream_offset import Position, TopicAt
from respool.spark.source.stream_plan import Available, available, ranges_between


def between(
    start: Position, latest: Position, *, fails: bool = True, unwanted: tuple[str, ...] = ()
) -> Available:
    return available(
        start,
        latest,
        Loss(fails),
        is_wanted=lambda name: name not in unwanted,
        earliest=lambda topic, partitions: dict.fromkeys(partitions, 2),
    )


def test_known_partitions_go_on_and_new_ones_begin_with_their_first_message() -> None:
    found = between({"t": TopicAt("i", {0: 7})}, {"t": TopicAt("i", {0: 9, 1: 4})})
    assert found.begins == {("t", 0): 7, ("t", 1): 2}
    assert found.position(found.ends) == {"t": TopicAt("i", {0: 9, 1: 4})}


def test_a_vanished_topic_is_an_error_that_names_it_and_the_option() -> None:
    with pytest.raises(DataLost, match=r"'t' \(id i\).*failOnDataLoss"):
        between({"t": TopicAt("i", {0: 7})}, {})


def test_a_vanished_topic_keeps_its_place_where_loss_is_allowed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        found = between({"t": TopicAt("i", {0: 7})}, {}, fails=False)
    assert "'t'" in caplog.text
    assert found.position(found.ends) == {"t": TopicAt("i", {0: 7})}


def test_a_loss_is_told_once_and_not_with_every_batch(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            between({"t": TopicAt("i", {0: 7})}, {}, fails=False)
        between({"u": TopicAt("i", {0: 7})}, {}, fails=False)
    assert [record.message.split()[2] for record in caplog.records] == ["'t'", "'u'"]


def test_a_topic_that_nobody_wants_any_more_is_no_loss_and_keeps_its_place() -> None:
    found = between({"t": TopicAt("i", {0: 7})}, {}, unwanted=("t",))
    assert found.position({}) == {"t": TopicAt("i", {0: 7})}


def test_a_recreated_topic_is_an_error_that_names_both_ids() -> None:
    with pytest.raises(DataLost, match=r"id old.*id new"):
        between({"t": TopicAt("old", {0: 7})}, {"t": TopicAt("new", {0: 9})})


def test_a_recreated_topic_is_read_from_its_start_where_loss_is_allowed() -> None:
    start, latest = {"t": TopicAt("old", {0: 7})}, {"t": TopicAt("new", {0: 9})}
    found = between(start, latest, fails=False)
    assert found.begins == {("t", 0): 2}
    assert ranges_between(start, found.position(found.ends)) == [
        Range(topic="t", topic_id="new", partition=0, begin=0, end=9)
    ]


def test_partitions_that_brokers_do_not_show_keep_their_place() -> None:
    found = between({"t": TopicAt("i", {0: 7, 1: 5})}, {"t": TopicAt("i", {0: 8})})
    assert found.position(found.ends) == {"t": TopicAt("i", {0: 8, 1: 5})}


def test_a_checkpoint_without_ids_learns_them() -> None:
    found = between({"t": TopicAt(None, {0: 7})}, {"t": TopicAt("i", {0: 8})})
    assert found.position(found.ends) == {"t": TopicAt("i", {0: 8})}


positions = st.dictionaries(
    st.sampled_from("abc"),
    st.builds(
        TopicAt, st.just("i"), st.dictionaries(st.integers(0, 3), st.integers(2, 50), min_size=1)
    ),
)


@given(positions, st.lists(positions, max_size=5))
def test_whatever_brokers_show_no_place_is_lost_and_none_goes_back(
    start: Position, shown: list[Position]
) -> None:
    at = start
    for latest in shown:
        found = between(at, latest, fails=False)
        following = found.position(found.ends)
        for name, before in at.items():
            for number, offset in before.offsets.items():
                assert following[name].offsets[number] >= offset
        at = following


@given(positions, st.lists(positions, max_size=5))
def test_batches_meet_without_gap_or_overlap(start: Position, shown: list[Position]) -> None:
    at, seen = start, dict[tuple[str, int], int]()
    for latest in shown:
        found = between(at, latest, fails=False)
        following = found.position(found.ends)
        for one in ranges_between(at, following):
            place = (one.topic, one.partition)
            begin = seen.get(place)
            if begin is None:
                known = at.get(one.topic)
                begin = 0 if known is None else known.offsets.get(one.partition, 0)
            assert one.begin == begin
            seen[place] = one.end
        at = following
