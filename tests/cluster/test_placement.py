"""New replicas are spread over racks, brokers and leaders."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.cluster_world import ONE, TWO
from respool.cluster.placement import place, rack_crowding
from respool.model.errors import InvalidPartitions, InvalidReplicationFactor
from respool.model.ids import BrokerId

NO_RACKS = {BrokerId(one): None for one in range(1, 7)}


def spread(counts: Counter[BrokerId], brokers: dict[BrokerId, str | None]) -> int:
    numbers = [counts[one] for one in brokers]
    return max(numbers) - min(numbers)


@given(
    rack_count=st.integers(1, 4),
    rack_size=st.integers(1, 3),
    partitions=st.integers(1, 40),
    factor=st.integers(1, 5),
    start=st.integers(0, 2**128),
)
@settings(deadline=None)
def test_with_racks_alike_replicas_and_leaders_differ_by_one_at_most(
    rack_count: int, rack_size: int, partitions: int, factor: int, start: int
) -> None:
    brokers: dict[BrokerId, str | None] = {
        BrokerId(one): f"rack-{one % rack_count}" for one in range(rack_count * rack_size)
    }
    factor = min(factor, len(brokers))
    placed = place(brokers, partition_count=partitions, replication_factor=factor, start=start)
    assert len(placed) == partitions
    for replicas in placed:
        assert len(set(replicas)) == factor
        racks = Counter(brokers[one] for one in replicas)
        assert max(racks.values()) - min(racks[f"rack-{one}"] for one in range(rack_count)) <= 1
    assert spread(Counter(one for replicas in placed for one in replicas), brokers) <= 1
    assert spread(Counter(replicas[0] for replicas in placed), brokers) <= 1


@given(
    racks=st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=8),
    partitions=st.integers(1, 30),
    factor=st.integers(1, 8),
)
@settings(deadline=None)
def test_with_any_racks_each_partition_is_in_as_many_as_it_can(
    racks: list[str | None], partitions: int, factor: int
) -> None:
    brokers = {BrokerId(one): rack for one, rack in enumerate(racks)}
    factor = min(factor, len(brokers))
    for replicas in place(brokers, partition_count=partitions, replication_factor=factor):
        assert len(set(replicas)) == factor
        assert len({brokers[one] for one in replicas}) == min(factor, len(set(racks)))


def test_a_broker_s_partitions_are_shared_with_all_others() -> None:
    placed = place(NO_RACKS, partition_count=30, replication_factor=3)
    beside = {one for replicas in placed if ONE in replicas for one in replicas}
    assert beside == set(NO_RACKS)


def test_a_small_topic_goes_where_least_is() -> None:
    held = dict.fromkeys(NO_RACKS, 5) | {TWO: 1}
    assert place(NO_RACKS, partition_count=1, replication_factor=1, held=held) == [(TWO,)]


def test_small_topics_begin_at_different_brokers() -> None:
    firsts = {
        place(NO_RACKS, partition_count=1, replication_factor=1, start=one)[0] for one in range(6)
    }
    assert len(firsts) == 6


def test_partitions_that_are_added_fill_up_where_the_topic_has_few() -> None:
    of_topic = [(BrokerId(one),) for one in (1, 2, 3)]
    added = place(NO_RACKS, partition_count=3, replication_factor=1, of_topic=of_topic)
    assert sorted(added) == [(4,), (5,), (6,)]


@pytest.mark.parametrize("factor", [0, -1, 7])
def test_there_cannot_be_more_replicas_than_brokers_nor_none(factor: int) -> None:
    with pytest.raises(InvalidReplicationFactor, match=str(factor)):
        place(NO_RACKS, partition_count=1, replication_factor=factor)


def test_a_topic_has_partitions() -> None:
    with pytest.raises(InvalidPartitions):
        place(NO_RACKS, partition_count=0, replication_factor=1)


def test_without_brokers_nothing_can_be_placed() -> None:
    with pytest.raises(InvalidReplicationFactor):
        place({}, partition_count=1, replication_factor=1)


def test_crowding_is_smaller_the_better_the_spread() -> None:
    racks = {ONE: "a", TWO: "a", BrokerId(3): "b", BrokerId(4): "c"}
    worst, middle, best = (ONE, TWO), (ONE, TWO, BrokerId(3)), (ONE, BrokerId(3), BrokerId(4))
    assert rack_crowding(worst, racks) == 4
    assert rack_crowding(middle, racks) == 5
    assert rack_crowding(best, racks) == 3


@given(partitions=st.integers(1, 60), start=st.integers(0, 100))
@settings(deadline=None)
def test_what_a_broker_leads_falls_to_all_others_alike_when_it_dies(
    partitions: int, start: int
) -> None:
    brokers = {BrokerId(one): None for one in (1, 2, 3)}
    placed = place(brokers, partition_count=partitions, replication_factor=3, start=start)
    for leader in brokers:
        heirs = Counter(second for first, second, _ in placed if first == leader)
        assert spread(heirs, {one: None for one in brokers if one != leader}) <= 1
