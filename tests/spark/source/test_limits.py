"""A micro-batch takes what its limits allow, of all partitions alike, and always gets on."""

from hypothesis import given
from hypothesis import strategies as st

from respool.spark.source.limits import (
    Place,
    is_worth_a_batch,
    limit_bytes,
    limit_offsets,
    waiting,
)

counts = st.dictionaries(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 4)), st.integers(0, 1000), max_size=8
)
Begun = tuple[dict[Place, int], dict[Place, int]]


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
