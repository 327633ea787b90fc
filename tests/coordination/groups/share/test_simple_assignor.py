"""The assignor of share groups: every partition and every member gets its part, and few move."""

from math import ceil
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from respool.coordination.groups.consumer.partition_sets import NO_PARTITIONS, PartitionSet, count
from respool.coordination.groups.share.simple_assignor import ShareSubscriber, assign_simple
from respool.model.ids import TopicId

A, B = TopicId(UUID(int=1)), TopicId(UUID(int=2))


def assign(
    members: dict[str, set[TopicId]],
    partitions: dict[TopicId, int],
    before: dict[str, PartitionSet] | None = None,
) -> dict[str, PartitionSet]:
    before = before or {}
    return assign_simple(
        {
            name: ShareSubscriber(frozenset(topics), before.get(name, NO_PARTITIONS))
            for name, topics in members.items()
        },
        {topic: frozenset(range(number)) for topic, number in partitions.items()},
    )


def test_members_without_partitions_to_spare_share_them() -> None:
    assigned = assign({"one": {A}, "two": {A}, "three": {A}}, {A: 1})
    assert list(assigned.values()) == [{A: frozenset({0})}] * 3


def test_members_with_different_subscriptions_are_assigned_by_topic() -> None:
    given = assign({"a": {A}, "b": {B}, "both": {A, B}}, {A: 1, B: 2})
    assert given["a"] == {A: frozenset({0})}
    assert given["both"].keys() == {A, B}
    assert given["b"][B] | given["both"][B] == frozenset({0, 1})


def test_what_nobody_subscribes_to_and_what_has_no_state_is_not_assigned() -> None:
    assert assign({"a": {A}}, {B: 2}) == {"a": {}}
    assert assign({}, {A: 1}) == {}


@given(members=st.integers(1, 12), partitions=st.integers(1, 12), joined=st.integers(0, 4))
def test_partitions_and_members_get_their_equal_part_and_few_move(
    members: int, partitions: int, joined: int
) -> None:
    names = [f"m{number}" for number in range(members)]
    before = assign({name: {A} for name in names}, {A: partitions})
    check(before, partitions)
    more = [*names, *(f"n{number}" for number in range(joined))]
    after = assign({name: {A} for name in more}, {A: partitions}, before)
    check(after, partitions)
    if not joined:
        assert after == before


def check(assigned: dict[str, PartitionSet], partitions: int) -> None:
    per_partition = ceil(len(assigned) / partitions)
    quota = ceil(partitions * per_partition / len(assigned))
    assert all(1 <= count(one) <= quota for one in assigned.values())
    held = [number for one in assigned.values() for number in one.get(A, ())]
    assert set(held) == set(range(partitions))
    assert all(held.count(number) <= per_partition + 1 for number in range(partitions))
