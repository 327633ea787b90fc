"""What a micro-batch reads, from a checkpoint and what brokers show: nothing twice, nothing passed over silently."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.spark.source.loss import DataLost, Loss
from respool.spark.source.stream_offset import Position, TopicAt
from respool.spark.source.stream_plan import (
    Available,
    Place,
    Range,
    available,
    is_worth_a_batch,
    limit_bytes,
    limit_offsets,
    ranges_between,
    split,
    waiting,
)

counts = st.dictionaries(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 4)), st.integers(0, 1000), max_size=8
)
Begun = tuple[dict[Place, int], dict[Place, int]]


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


def spread(counts: dict[Place, int]) -> Begun:
    start = {place: 7 * place[1] for place in counts}
    return start, {place: start[place] + count for place, count in counts.items()}


@given(counts, st.integers(1, 3000))
def test_not_more_offsets_are_taken_than_allowed_and_as_many_as_there_are(
    counts: dict[Place, int], most: int
) -> None:
    start, end = spread(counts)
    limited = limit_offsets(start, end, most)
    assert sum(waiting(start, limited).values()) == min(most, sum(counts.values()))
    assert limited.keys() == end.keys()
    assert all(start[place] <= limited[place] <= end[place] for place in end)


@given(counts, st.integers(1, 3000))
def test_each_partition_gets_its_share_of_what_waits(counts: dict[Place, int], most: int) -> None:
    start, end = spread(counts)
    limited = limit_offsets(start, end, most)
    total = sum(counts.values())
    if total > most:
        for place, count in counts.items():
            assert abs((limited[place] - start[place]) - most * count / total) < 1


@given(counts, st.integers(1, 200))
def test_everything_is_read_in_the_end(counts: dict[Place, int], most: int) -> None:
    start, end = spread(counts)
    at, rounds = start, 0
    while waiting(at, end):
        at = limit_offsets(at, end, most)
        rounds += 1
    assert rounds == -(-sum(counts.values()) // most)


@given(counts, st.integers(1, 100_000), st.floats(0, 500))
def test_about_as_many_bytes_are_taken_as_allowed_and_at_least_one_message(
    counts: dict[Place, int], most: int, size: float
) -> None:
    start, end = spread(counts)
    limited = limit_bytes(start, end, most, dict.fromkeys(end, size))
    taken = sum(waiting(start, limited).values())
    assert taken * size <= max(most, size) + 1e-6
    assert taken or not waiting(start, end)


def test_large_messages_of_one_partition_make_a_batch_shorter() -> None:
    start: dict[Place, int] = {("a", 0): 0, ("a", 1): 0}
    end: dict[Place, int] = {("a", 0): 100, ("a", 1): 100}
    limited = limit_bytes(start, end, 1010, {("a", 0): 100.0, ("a", 1): 1.0})
    assert limited == {("a", 0): 10, ("a", 1): 10}


def test_a_batch_is_worth_it_when_enough_waits() -> None:
    start, end = spread({("a", 0): 4, ("b", 0): 5})
    assert is_worth_a_batch(start, end, 9)
    assert not is_worth_a_batch(start, end, 10)


def ranges_of(counts: list[int]) -> list[Range]:
    return [
        Range(topic="t", topic_id="i", partition=number, begin=10, end=10 + count)
        for number, count in enumerate(counts)
    ]


limits = st.none() | st.integers(1, 40)


@given(st.lists(st.integers(0, 300), max_size=6), limits, limits)
def test_every_offset_is_in_one_task(
    counts: list[int], at_least: int | None, offsets_max: int | None
) -> None:
    ranges = ranges_of(counts)
    parts = split(ranges, at_least=at_least, offsets_max=offsets_max)
    for one in ranges:
        mine = [part for part in parts if part.partition == one.partition]
        offsets = [offset for part in mine for offset in range(part.begin, part.end)]
        assert offsets == list(range(one.begin, one.end))
    assert all(part.count > 0 for part in parts)
    assert parts == split(ranges, at_least=at_least, offsets_max=offsets_max)


@given(st.lists(st.integers(0, 300), max_size=6), limits, limits)
def test_there_are_as_many_tasks_as_asked_for_and_none_is_too_long(
    counts: list[int], at_least: int | None, offsets_max: int | None
) -> None:
    parts = split(ranges_of(counts), at_least=at_least, offsets_max=offsets_max)
    if offsets_max is not None:
        assert all(part.count <= offsets_max for part in parts)
    if at_least is not None:
        assert len(parts) >= min(at_least, sum(counts))


def test_the_longest_range_is_cut_first() -> None:
    parts = split(ranges_of([100, 10, 10]), at_least=5)
    assert [part.count for part in parts] == [33, 33, 34, 10, 10]


def test_without_wishes_each_range_is_one_task() -> None:
    assert split(ranges_of([5, 0, 7])) == [one for one in ranges_of([5, 0, 7]) if one.count]
