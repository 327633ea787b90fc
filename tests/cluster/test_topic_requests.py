"""Topics are created and deleted in writes the store takes; what is left of a broken-off one is collected."""

from uuid import UUID

import pytest

from cluster.cluster_world import FOUR, ONE, THREE, TWO, ClusterWorld, image_of, view_of
from respool.cluster import keys
from respool.cluster.controller_decisions import decide
from respool.cluster.guarded_write import OPERATIONS_MAX, GuardedWrite
from respool.cluster.strays import StrayAges, collect
from respool.cluster.topic_requests import (
    configure_topic,
    create_topic,
    delete_topic,
    grow_topic,
    sealed,
)
from respool.cluster.view import read_view
from respool.model.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidTopic,
    RequestError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from respool.model.ids import TopicId

ID = TopicId(UUID(int=77))
LARGE = 250


def world() -> ClusterWorld:
    return ClusterWorld(dict.fromkeys((ONE, TWO, THREE)))


def test_a_topic_is_seen_only_when_all_its_partitions_are_written() -> None:
    cluster = world()
    writes = create_topic(
        cluster.view(),
        "t",
        topic_id=ID,
        overrides={"min.insync.replicas": "2"},
        partition_count=LARGE,
        replication_factor=2,
    )
    assert len(writes) > 2
    for write in writes:
        assert len(write.guards) + len(write.puts) + len(write.deletes) <= OPERATIONS_MAX
        assert write.guards[0].key == keys.CONTROLLER
        assert "t" not in cluster.view().topics
        cluster.apply([write])
    topic = cluster.view().topics["t"]
    assert (topic.id, len(topic.partitions), topic.rules.min_isr) == (ID, LARGE, 2)
    for image in topic.partitions:
        assert image.leader == image.replicas[0]
        assert image.isr == image.replicas
        assert image.leader_epoch == 0
    assert decide(cluster.view()) == []


def test_what_is_left_of_a_broken_off_creation_is_collected_but_not_while_it_goes_on() -> None:
    cluster = world()
    writes = create_topic(
        cluster.view(), "t", topic_id=ID, overrides={}, partition_count=LARGE, replication_factor=1
    )
    cluster.apply(writes[:-1])
    going_on = read_view(
        cluster.values,
        controller_revision=cluster.view().controller_revision,
        creating=frozenset({ID}),
    )
    assert decide(going_on) == []
    cluster.decide()
    assert not [key for key in cluster.values if key.startswith(keys.PARTITIONS)]


def half_created(cluster: ClusterWorld) -> GuardedWrite:
    """All is written but the last write, which is returned as its seal makes it."""
    writes = create_topic(
        cluster.view(), "t", topic_id=ID, overrides={}, partition_count=LARGE, replication_factor=1
    )
    cluster.apply(writes[:1])
    first_revision = cluster.revision
    cluster.apply(writes[1:-1])
    return sealed(writes, first_revision=first_revision)


def test_of_a_topic_that_was_made_meanwhile_nothing_is_collected() -> None:
    """Another broker makes it; the controller took it for broken off just before the last write."""
    cluster = world()
    last = half_created(cluster)
    collection = collect(cluster.view())
    assert len(collection) > 1

    cluster.apply([last])
    cluster.apply_what_holds(collection)

    assert len(cluster.view().topics["t"].partitions) == LARGE
    assert decide(cluster.view()) == []


@pytest.mark.parametrize("is_all_collected", [False, True])
def test_a_topic_of_which_something_was_collected_does_not_come_to_be(
    is_all_collected: bool,
) -> None:
    cluster = world()
    last = half_created(cluster)
    collection = collect(cluster.view())
    cluster.apply(collection if is_all_collected else collection[:1])

    cluster.apply_what_holds([last])

    assert "t" not in cluster.view().topics
    # Neither do the parts that are left harm a second try.
    writes = create_topic(
        cluster.view(), "t", topic_id=ID, overrides={}, partition_count=LARGE, replication_factor=1
    )
    cluster.apply(writes[:-1])
    cluster.apply_what_holds(collection[1:])
    cluster.apply(writes[-1:])
    assert len(cluster.view().topics["t"].partitions) == LARGE


def test_strays_are_old_when_they_were_there_unchanged_for_so_long() -> None:
    ages = StrayAges()
    assert ages.on_view({"/a": 1, "/b": 2}, now_ms=0, wait_ms=100) == {}
    # One was written anew.
    assert ages.on_view({"/a": 1, "/b": 3}, now_ms=99, wait_ms=100) == {}
    assert ages.on_view({"/a": 1, "/b": 3}, now_ms=100, wait_ms=100) == {"/a": 1}
    assert ages.on_view({"/b": 3}, now_ms=199, wait_ms=100) == {"/b": 3}
    # What was gone in between starts anew.
    assert ages.on_view({"/a": 1}, now_ms=200, wait_ms=100) == {}


def test_a_topic_of_which_a_partition_is_not_seen_yet_is_not_seen_and_its_others_are_no_strays() -> (
    None
):
    cluster = world()
    cluster.create("t", partitions=3, factor=1, overrides={})
    topic = cluster.view().topics["t"]
    del cluster.values[keys.partition_key(topic.id, 1)]
    cluster.revision += 1
    assert cluster.view().topics == {}
    assert cluster.view().strays == {}


def test_settings_are_replaced_if_the_topic_is_as_it_was_seen() -> None:
    cluster = world()
    cluster.create("t", partitions=2, factor=1, overrides={"min.insync.replicas": "2"})
    view = cluster.view()
    cluster.apply(configure_topic(view, "t", overrides={}))
    topic = cluster.view().topics["t"]
    assert (topic.id, len(topic.partitions), topic.overrides) == (view.topics["t"].id, 2, {})
    with pytest.raises(AssertionError):
        cluster.apply(configure_topic(view, "t", overrides={}))
    with pytest.raises(UnknownTopicOrPartition):
        configure_topic(view, "other", overrides={})


def test_a_deleted_topic_is_gone_with_the_first_write() -> None:
    cluster = world()
    cluster.create("t", partitions=LARGE, factor=1, overrides={})
    writes = delete_topic(cluster.view(), "t")
    assert len(writes) > 1
    cluster.apply(writes[:1])
    assert cluster.view().topics == {}
    cluster.decide()
    assert not [key for key in cluster.values if key.startswith(keys.PARTITIONS)]


def test_two_who_create_a_topic_at_once_do_not_both_succeed() -> None:
    cluster = world()
    view = cluster.view()
    first, second = (
        create_topic(
            view,
            "t",
            topic_id=TopicId(UUID(int=number)),
            overrides={},
            partition_count=1,
            replication_factor=1,
        )
        for number in (1, 2)
    )
    cluster.apply(first)
    with pytest.raises(AssertionError):
        cluster.apply(second)


def test_a_topic_grows_by_partitions_with_as_many_replicas() -> None:
    cluster = world()
    cluster.create("t", partitions=2, factor=2, overrides={})
    cluster.apply(grow_topic(cluster.view(), "t", partition_count=5))
    topic = cluster.view().topics["t"]
    assert [len(image.replicas) for image in topic.partitions] == [2] * 5


def test_who_grows_a_topic_too_late_writes_over_none_of_its_partitions() -> None:
    """
    1. Two brokers are asked to give a topic the same number of partitions, more than go into one write: a client that
       heard no answer asks the next broker.   2. One of them is done, and the new partitions are written to.
    3. The other one is still at it.
    """
    cluster = world()
    cluster.create("t", partitions=1, factor=2, overrides={})
    first, second = (grow_topic(cluster.view(), "t", partition_count=LARGE) for _ in range(2))
    assert len(second) > 2
    cluster.apply(first[:1])
    first_revision = cluster.revision
    cluster.apply(first[1:-1])
    cluster.apply([sealed(first, first_revision=first_revision)])
    before = cluster.view().topics["t"].partitions
    cluster.apply_what_holds(second)
    # Not even with the same values: by then they may have other leaders, and records.
    assert cluster.view().topics["t"].partitions == before


def test_replicas_go_where_they_are_assigned_to() -> None:
    view = view_of(live=(1, 2))
    cluster = world()
    cluster.die(THREE)
    cluster.apply(
        create_topic(
            cluster.view(),
            "t",
            topic_id=ID,
            overrides={},
            assignment={0: (THREE, ONE), 1: (ONE, TWO)},
        )
    )
    first, second = cluster.view().topics["t"].partitions
    # Who does not run is not in sync from the start.
    assert (first.replicas, first.isr, first.leader) == ((THREE, ONE), (ONE,), ONE)
    assert (second.replicas, second.isr, second.leader) == ((ONE, TWO), (ONE, TWO), ONE)
    assert view.topics == {}


@pytest.mark.parametrize(
    ("name", "more", "error"),
    [
        ("t", {"partition_count": 1, "replication_factor": 1}, TopicAlreadyExists),
        ("a/b", {"partition_count": 1, "replication_factor": 1}, InvalidTopic),
        ("new", {"partition_count": 0, "replication_factor": 1}, InvalidPartitions),
        ("new", {"partition_count": 1, "replication_factor": 4}, InvalidReplicationFactor),
        ("new", {"partition_count": 1, "replication_factor": 0}, InvalidReplicationFactor),
        ("new", {"assignment": {1: (ONE,)}}, InvalidReplicaAssignment),
        ("new", {"assignment": {0: (ONE, ONE)}}, InvalidReplicaAssignment),
        ("new", {"assignment": {0: (ONE,), 1: (ONE, TWO)}}, InvalidReplicaAssignment),
        ("new", {"assignment": {0: (FOUR,)}}, InvalidReplicaAssignment),
    ],
)
def test_what_cannot_be_created_is_refused(
    name: str, more: dict[str, object], error: type[RequestError]
) -> None:
    with pytest.raises(error):
        create_topic(view_of(image_of(1)), name, topic_id=ID, overrides={}, **more)  # type: ignore[arg-type]


def test_a_topic_cannot_shrink_nor_grow_by_another_number_than_assigned() -> None:
    view = view_of(image_of(1), image_of(2))
    with pytest.raises(InvalidPartitions):
        grow_topic(view, "t", partition_count=2)
    with pytest.raises(InvalidReplicaAssignment):
        grow_topic(view, "t", partition_count=4, assignment={2: (ONE,)})
    with pytest.raises(UnknownTopicOrPartition):
        grow_topic(view, "other", partition_count=4)
    with pytest.raises(UnknownTopicOrPartition):
        delete_topic(view, "other")
