"""Balance: even numbers, few moves, nothing to do for what is even."""

from collections import Counter
from dataclasses import replace
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.cluster_world import FOUR, ONE, THREE, TWO, image_of, topic_of, view_of
from respool.cluster.placement import rack_crowding
from respool.cluster.replica_balance import balance, balanced_targets
from respool.cluster.view import ClusterView
from respool.model.cluster import PartitionImage
from respool.model.ids import BrokerId, LeaderEpoch, TopicId, TopicPartition


def view_with(
    topics: list[list[tuple[BrokerId, ...]]], racks: dict[BrokerId, str | None]
) -> ClusterView:
    view = view_of(live=racks)
    made = {
        f"topic-{number}": replace(
            topic_of(
                *(
                    PartitionImage(
                        replicas=replicas,
                        isr=replicas,
                        leader=replicas[0],
                        leader_epoch=LeaderEpoch(0),
                    )
                    for replicas in partitions
                ),
                name=f"topic-{number}",
            ),
            id=TopicId(UUID(int=number)),
        )
        for number, partitions in enumerate(topics)
    }
    return replace(view, image=replace(view.image, topics=made, registry={}))


@st.composite
def clusters(draw: st.DrawFn, *, are_racks_alike: bool) -> ClusterView:
    """Replicas anywhere, also all of them on a few brokers."""
    if are_racks_alike:
        count, size = draw(st.integers(1, 3)), draw(st.integers(1, 3))
        racks: dict[BrokerId, str | None] = {
            BrokerId(one): f"rack-{one % count}" for one in range(count * size)
        }
    else:
        names = draw(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=7))
        racks = {BrokerId(one): name for one, name in enumerate(names)}
    factor = draw(st.integers(1, min(4, len(racks))))
    crowd = draw(st.integers(factor, len(racks)))
    replicas = st.permutations(sorted(racks)[:crowd]).map(lambda order: tuple(order[:factor]))
    topics = draw(st.lists(st.lists(replicas, min_size=1, max_size=10), min_size=1, max_size=3))
    return view_with(topics, racks)


def replicas_after(view: ClusterView) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    before = {
        TopicPartition(topic.name, number): image.replicas
        for topic, number, image in view.partitions()
    }
    return before | balanced_targets(view)


def balanced(view: ClusterView) -> ClusterView:
    topics: dict[str, list[tuple[BrokerId, ...]]] = {}
    for of, replicas in replicas_after(view).items():
        topics.setdefault(of.topic, []).append(replicas)
    return view_with(
        [topics[f"topic-{number}"] for number in range(len(topics))],
        {one: endpoint.rack for one, endpoint in view.brokers.items()},
    )


def spread(counts: Counter[BrokerId], view: ClusterView) -> int:
    numbers = [counts[one] for one in view.brokers]
    return max(numbers) - min(numbers)


@given(view=clusters(are_racks_alike=True))
@settings(deadline=None)
def test_with_racks_alike_replicas_and_leaders_differ_by_one_at_most(view: ClusterView) -> None:
    after = replicas_after(view).values()
    assert spread(Counter(one for replicas in after for one in replicas), view) <= 1
    assert spread(Counter(replicas[0] for replicas in after), view) <= 1


@given(view=clusters(are_racks_alike=False))
@settings(deadline=None)
def test_no_partition_is_less_spread_and_within_a_rack_all_is_even(view: ClusterView) -> None:
    racks = view.candidates()
    for of, replicas in replicas_after(view).items():
        found = view.partition(of)
        assert found is not None
        assert len(set(replicas)) == len(found[1].replicas)
        assert rack_crowding(replicas, racks) <= rack_crowding(found[1].replicas, racks)
    load = Counter(one for replicas in replicas_after(view).values() for one in replicas)
    for rack in set(racks.values()):
        numbers = [load[one] for one in racks if racks[one] == rack]
        assert max(numbers) - min(numbers) <= 1


@given(view=clusters(are_racks_alike=False))
@settings(deadline=None)
def test_what_is_balanced_gives_no_moves(view: ClusterView) -> None:
    assert balance(balanced(view)) == []


def test_a_new_broker_is_given_its_share_and_no_more_is_moved() -> None:
    partitions: list[tuple[BrokerId, ...]] = [(ONE, TWO), (TWO, THREE), (THREE, ONE)] * 4
    view = view_with([partitions], dict.fromkeys((ONE, TWO, THREE, FOUR)))
    moved = balanced_targets(view)
    arrivals = [of for of, replicas in moved.items() if FOUR in replicas]
    assert len(arrivals) == 6
    for of, replicas in moved.items():
        gone = set(partitions[of.partition]) - set(replicas)
        assert len(gone) == (FOUR in replicas)


def test_a_new_broker_is_given_a_share_of_every_topic() -> None:
    topic: list[tuple[BrokerId, ...]] = [(ONE,), (TWO,), (THREE,)] * 4
    view = view_with([topic, topic, topic], dict.fromkeys((ONE, TWO, THREE, FOUR)))
    arrivals = Counter(of.topic for of, now in balanced_targets(view).items() if FOUR in now)
    assert arrivals == {"topic-0": 3, "topic-1": 3, "topic-2": 3}


def test_a_small_topic_is_as_even_as_a_large_one_when_a_broker_comes() -> None:
    """As of a cluster with one topic of a user, and the fifty partitions that groups keep their offsets in."""
    three: list[tuple[BrokerId, ...]] = [(ONE, TWO, THREE), (TWO, ONE, THREE), (THREE, ONE, TWO)]
    view = view_with([three * 2, three * 16], dict.fromkeys((ONE, TWO, THREE, FOUR)))
    after = replicas_after(view)
    for topic in ("topic-0", "topic-1"):
        of_topic = [now for of, now in after.items() if of.topic == topic]
        assert spread(Counter(one for now in of_topic for one in now), view) <= 1
        assert spread(Counter(now[0] for now in of_topic), view) <= 1
    heirs = Counter((now[0], now[1]) for now in after.values())
    assert max(heirs.values()) - min(heirs.values()) <= 2
    copied = sum(FOUR in now for now in after.values())
    assert copied in {40, 41}


def unevenness(found: dict[TopicPartition, tuple[BrokerId, ...]]) -> tuple[int, int]:
    """Of all replicas, and then of those of each topic."""
    in_all = Counter(one for now in found.values() for one in now)
    in_topics = Counter((of.topic, one) for of, now in found.items() for one in now)
    both = (sum(count**2 for count in counts.values()) for counts in (in_all, in_topics))
    return next(both), next(both)


@given(view=clusters(are_racks_alike=False))
@settings(deadline=None)
def test_topics_become_less_even_only_where_brokers_become_more_so(view: ClusterView) -> None:
    before: dict[TopicPartition, tuple[BrokerId, ...]] = {}
    topics: dict[str, list[tuple[BrokerId, ...]]] = {}
    for topic, number, image in view.partitions():
        before[TopicPartition(topic.name, number)] = image.replicas
        topics.setdefault(topic.name, []).append(image.replicas)
    no_racks = view_with(list(topics.values()), dict.fromkeys(view.brokers))
    assert unevenness(replicas_after(no_racks)) <= unevenness(before)


def test_leaders_are_evened_out_without_copying() -> None:
    view = view_of(image_of(1, 2), image_of(1, 2), live=(1, 2))
    targets = balanced_targets(view)
    assert [set(replicas) for replicas in targets.values()] == [{ONE, TWO}]
    assert [replicas[0] for replicas in targets.values()] == [TWO]


def test_partitions_on_their_way_and_brokers_that_leave_are_left_alone() -> None:
    moving = image_of(1, 2, isr=[1], adding=(TWO,))
    view = view_of(moving, moving, moving, live=(1, 2, 3), drained=[3])
    assert balance(view) == []
    crowded = view_of(moving, live={ONE: "a", TWO: "a", THREE: "b"})
    assert balance(crowded) == []
    settled = view_of(image_of(1, 2), live={ONE: "a", TWO: "a", THREE: "b"})
    assert balance(settled) != []


def test_without_brokers_there_is_nothing_to_balance() -> None:
    assert balance(view_of(image_of(1, 2), live=())) == []


def test_while_not_all_brokers_name_a_rack_none_is_looked_at() -> None:
    """The one that did got a replica of every partition."""
    partitions: list[tuple[BrokerId, ...]] = [(ONE, TWO), (TWO, FOUR), (FOUR, ONE)] * 4
    view = view_with([partitions], {ONE: None, TWO: None, THREE: "c", FOUR: None})
    load = Counter(one for replicas in replicas_after(view).values() for one in replicas)
    assert load == {ONE: 6, TWO: 6, THREE: 6, FOUR: 6}
    assert balance(balanced(view)) == []
