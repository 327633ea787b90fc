"""Replicas leave brokers that are drained, removed or dead for long; a few at a time."""

import pytest

from cluster.cluster_world import (
    FOUR,
    ONE,
    SYNCED,
    THREE,
    TWO,
    ClusterWorld,
    image_of,
    view_of,
    written,
)
from respool.cluster.broker_requests import broker_load, drain
from respool.cluster.controller_decisions import decide
from respool.cluster.copy_limit import due_copies
from respool.model.cluster import PartitionImage
from respool.model.cluster_settings import ControllerSettings
from respool.model.ids import BrokerId, TopicPartition

DEAD_AFTER = ControllerSettings(dead_after_ms=60_000)


def test_a_broker_that_stays_dead_is_replaced_after_its_time() -> None:
    for now_ms, replicas in [(59_999, None), (60_000, (ONE, FOUR, TWO))]:
        view = view_of(
            image_of(1, 2, isr=[1]),
            live=(1, 4),
            missing_since_ms={TWO: 0},
            now_ms=now_ms,
            settings=DEAD_AFTER,
        )
        images = written(decide(view))
        assert (images[0].replicas if images else None) == replicas


def test_a_replacement_goes_to_another_rack_if_it_can() -> None:
    view = view_of(
        image_of(1, 2, isr=[1]),
        live={ONE: "a", THREE: "a", FOUR: "b"},
        missing_since_ms={TWO: 0},
        now_ms=600_000,
    )
    assert written(decide(view))[0].adding == (FOUR,)


def test_where_no_broker_is_free_the_dead_one_stays() -> None:
    view = view_of(image_of(1, 2, isr=[1]), live=(1,), missing_since_ms={TWO: 0}, now_ms=600_000)
    assert decide(view) == []


def test_where_nobody_leads_there_is_nothing_to_copy_from() -> None:
    lost = image_of(1, 2, isr=[], elr=(TWO,), last_leader=TWO)
    view = view_of(lost, live=(1, 4), missing_since_ms={TWO: 0}, now_ms=600_000)
    assert decide(view) == []


def test_a_target_that_dies_on_the_way_is_replaced_too() -> None:
    moving = image_of(1, 4, 2, isr=[1], adding=(FOUR,), removing=(TWO,))
    view = view_of(moving, live=(1, 3), missing_since_ms={TWO: 0, FOUR: 0}, now_ms=600_000)
    image = written(decide(view))[0]
    assert (image.replicas, image.adding) == ((ONE, THREE, TWO), (THREE,))
    # The replica that was added for nothing is fenced.
    assert image.leader_epoch == moving.leader_epoch + 1


FAILED_AT_ITS_LEADER = image_of(1, 2, 4, isr=[1], adding=(FOUR,), removing=(ONE,), offline=(ONE,))
FAILED_AT_ITS_TAKER = image_of(
    3, 4, 1, isr=[3, 1], adding=(FOUR,), removing=(ONE,), offline=(FOUR,)
)


@pytest.mark.parametrize(
    ("failed", "sound", "moved"),
    [
        (FAILED_AT_ITS_LEADER, image_of(1, 2), (THREE, TWO, ONE)),
        (FAILED_AT_ITS_TAKER, image_of(3, 1), (THREE, TWO, ONE)),
    ],
    ids=["nothing to copy from", "nowhere to copy to"],
)
def test_partitions_that_cannot_be_copied_hold_up_no_others(
    failed: PartitionImage, sound: PartitionImage, moved: tuple[BrokerId, ...]
) -> None:
    """Their copies had begun, never came to an end, and kept the places of all that came after them, for good."""
    view = view_of(*[failed] * 8, sound, live=(1, 2, 3, 4), drained=[1])
    assert view.settings.copies_per_broker_max == 8
    images = written(decide(view))
    assert images[8].replicas == moved
    # Also before the controller has seen what failed: each broker knows by itself what is its turn.
    view = view_of(*[failed] * 8, images[8], live=(1, 2, 3, 4), drained=[1])
    turns = due_copies(view)
    assert [of for one in turns.values() for of in one] == [TopicPartition("t", 8)]


def test_only_so_many_partitions_are_copied_at_a_time() -> None:
    view = view_of(
        *[image_of(1, 2, isr=[1])] * 5,
        live=(1, 4),
        missing_since_ms={TWO: 0},
        now_ms=600_000,
        settings=ControllerSettings(copies_per_broker_max=3),
    )
    assert len(written(decide(view))) == 3


def test_each_broker_knows_which_copies_have_their_turn() -> None:
    moving = image_of(1, 4, isr=[1], adding=(FOUR,))
    view = view_of(
        moving, moving, moving, live=(1, 4), settings=ControllerSettings(copies_per_broker_max=2)
    )
    assert due_copies(view) == {FOUR: (TopicPartition("t", 0), TopicPartition("t", 1))}


def test_copies_to_brokers_that_do_not_run_keep_nobody_from_copying() -> None:
    dead, live = image_of(1, 4, isr=[1], adding=(FOUR,)), image_of(1, 3, isr=[1], adding=(THREE,))
    view = view_of(dead, live, live=(1, 3), settings=ControllerSettings(copies_per_broker_max=1))
    assert due_copies(view) == {THREE: (TopicPartition("t", 1),)}


def test_a_drained_broker_ends_up_with_nothing_and_nobody_else_is_moved() -> None:
    world = ClusterWorld(
        dict.fromkeys((ONE, TWO, THREE, FOUR)), settings=ControllerSettings(copies_per_broker_max=2)
    )
    world.create("t", partitions=12, factor=3, overrides={"min.insync.replicas": "2", **SYNCED})
    world.decide()
    before = world.images()
    world.apply(drain(world.view(), THREE))
    rounds = 0
    while broker_load(world.view(), THREE).replicas:
        world.decide()
        assert broker_load(world.view(), THREE).leads == 0
        world.catch_up_everywhere()
        rounds += 1
        assert rounds < 20
    for of, image in world.images().items():
        assert set(before[of].replicas) - {THREE} <= set(image.replicas)
        assert len(image.isr) == len(image.replicas) == 3
