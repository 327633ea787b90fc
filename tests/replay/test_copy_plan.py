import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.replay.copy_plan import (
    CopyPlan,
    ProducerId,
    Span,
    murmur2,
    partition_for_key,
)


def plan(*, sources: int, targets: int) -> CopyPlan:
    return CopyPlan(
        topic="rides",
        into="copy",
        spans={number: Span(10 * number, 100) for number in range(sources)},
        producers={number: ProducerId(7000 + number, 0) for number in range(sources)},
        source_count=sources,
        target_ends=dict.fromkeys(range(targets), 5),
    )


@pytest.mark.parametrize(
    ("text", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"abc", 479470107),
    ],
)
def test_keys_are_hashed_as_the_java_client_does(text: bytes, signed: int) -> None:
    assert murmur2(text) == signed & 0xFFFFFFFF


def test_with_as_many_partitions_messages_stay_in_theirs() -> None:
    same = plan(sources=3, targets=3)
    assert [same.target_for(source, b"any") for source in range(3)] == [0, 1, 2]
    assert list(same.targets_of(2)) == [2]


def test_with_other_partitions_the_key_decides_and_without_one_the_source() -> None:
    other = plan(sources=3, targets=2)
    assert {other.target_for(source, b"ride-7") for source in range(3)} == {
        partition_for_key(b"ride-7", 2)
    }
    assert [other.target_for(source, None) for source in range(3)] == [0, 1, 0]
    assert list(other.targets_of(2)) == [0, 1]


@given(st.binary(max_size=40), st.integers(1, 20))
def test_a_key_has_one_partition_and_it_exists(key: bytes, count: int) -> None:
    assert 0 <= partition_for_key(key, count) < count


def test_a_plan_is_read_back_as_it_was_recorded() -> None:
    begun = plan(sources=3, targets=2)
    assert CopyPlan.from_document(begun.to_document()) == begun
    assert begun.messages == 100 + 90 + 80
