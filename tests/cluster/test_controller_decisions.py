"""What is due by itself: urgent writes first, guarded, each with its reason; and the time brokers are missing."""

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
from respool.cluster import keys
from respool.cluster.broker_requests import broker_load, drain
from respool.cluster.controller_decisions import decide
from respool.cluster.copy_limit import due_copies
from respool.cluster.guarded_write import OPERATIONS_MAX, GuardedWrite, KeyChange, in_writes
from respool.cluster.liveness import MissingBrokers
from respool.cluster.own_replicas import resign_everywhere
from respool.model.cluster import PartitionImage
from respool.model.cluster_settings import ControllerSettings
from respool.model.ids import BrokerId, TopicPartition
from respool.ports.metadata_store import Guard

DEAD_AFTER = ControllerSettings(dead_after_ms=60_000)


def test_a_broker_s_death_is_answered_in_writes_the_store_takes() -> None:
    view = view_of(*[image_of(1, 2, 3)] * 120, live=(2, 3))
    writes = decide(view)
    assert len(writes) == 3
    assert sum(len(write.puts) for write in writes) == 120
    for write in writes:
        assert len(write.guards) + len(write.puts) <= OPERATIONS_MAX
        assert write.guards[0] == Guard(key=keys.CONTROLLER, revision=1)
        assert {guard.key for guard in write.guards[1:]} == set(write.puts)


def test_new_leaders_are_written_first() -> None:
    view = view_of(*[image_of(2, 1)] * 60, *[image_of(1, 2)] * 2, live=(2,))
    first = written(decide(view)[:1])
    assert {60, 61} <= set(first)


def test_a_write_says_why() -> None:
    (write,) = decide(view_of(*[image_of(1, 2)] * 5, live=(2,)))
    assert write.why == (
        "t-0: leader 2 after 1, in sync [2], not [1, 2]; t-1: leader 2 after 1, in sync [2], not [1, 2]; "
        "t-2: leader 2 after 1, in sync [2], not [1, 2]; and 2 more"
    )


def test_an_election_that_may_lose_something_says_so() -> None:
    world = ClusterWorld(dict.fromkeys((ONE, TWO)))
    world.create("t", partitions=1, factor=2, overrides={"unclean.leader.election.enable": "true"})
    of = TopicPartition("t", 0)
    leader = world.image(of).leader
    assert leader is not None
    follower = ({ONE, TWO} - {leader}).pop()
    world.shrink_isr(of, follower)
    world.commit(of)
    world.die(leader)
    world.decide()
    assert world.image(of).leader is None
    world.now_ms += 30_000
    (write,) = decide(world.view())
    assert "UNCLEAN" in write.why


def test_a_controller_that_is_none_any_more_writes_nothing() -> None:
    world = ClusterWorld(dict.fromkeys((ONE, TWO)))
    world.create("t", partitions=1, factor=2, overrides={})
    world.die(ONE)
    writes = decide(world.view())
    world.put(keys.CONTROLLER, keys.encode_controller(TWO))
    before = world.images()
    with pytest.raises(AssertionError):
        world.apply(writes)
    assert world.images() == before


def test_a_leader_that_was_faster_is_not_overwritten() -> None:
    world = ClusterWorld(dict.fromkeys((ONE, TWO, THREE)))
    world.create("t", partitions=1, factor=3, overrides={})
    of = TopicPartition("t", 0)
    leader, _, last = world.image(of).replicas
    world.die(last)
    writes = decide(world.view())
    world.shrink_isr(of, last)
    with pytest.raises(AssertionError):
        world.apply(writes)
    assert world.image(of).leader == leader
    assert decide(world.view()) == []


def test_a_write_larger_than_the_store_takes_cannot_be_made() -> None:
    guards = tuple(Guard(key=str(one), revision=1) for one in range(OPERATIONS_MAX + 1))
    with pytest.raises(AssertionError, match="101 operations"):
        GuardedWrite(guards=guards, why="too much")


def test_no_changes_are_no_writes() -> None:
    guard = Guard(key=keys.CONTROLLER, revision=1)
    assert in_writes([], guard=guard) == []
    change = KeyChange(key="k", value=None, revision=None, why="gone")
    assert in_writes([change], guard=guard) == [
        GuardedWrite(guards=(guard,), deletes=("k",), why="gone")
    ]


def test_a_broker_is_missing_since_the_controller_first_missed_it() -> None:
    absences = MissingBrokers()
    everybody = (ONE, TWO, THREE)
    assert absences.on_view(known=everybody, live=(ONE,), now_ms=10) == {TWO: 10, THREE: 10}
    assert absences.on_view(known=everybody, live=(ONE, TWO), now_ms=20) == {THREE: 10}
    # Back and gone again: it counts anew.
    assert absences.on_view(known=everybody, live=(ONE,), now_ms=30) == {TWO: 30, THREE: 10}
    # Another controller does not know of before.
    assert MissingBrokers().on_view(known=everybody, live=(ONE,), now_ms=40) == {TWO: 40, THREE: 40}


def test_the_controller_knows_when_time_alone_makes_something_due() -> None:
    absences = MissingBrokers()
    settings = ControllerSettings(dead_after_ms=1_000, unclean_wait_ms=100)
    assert absences.next_due_ms(settings, now_ms=0) is None
    absences.on_view(known=(ONE, TWO), live=(ONE,), now_ms=50)
    assert absences.next_due_ms(settings, now_ms=50) == 150
    assert absences.next_due_ms(settings, now_ms=150) == 1_050
    assert absences.next_due_ms(settings, now_ms=1_050) is None


def test_a_broker_steps_back_only_while_it_is_not_registered() -> None:
    view = view_of(image_of(4, 1), image_of(1, 4), image_of(1, 2))
    (write,) = resign_everywhere(view.topics.values(), FOUR, was_clean=False)
    assert write.guards[0] == Guard(key=keys.broker_key(FOUR), revision=0)
    images = written([write])
    assert sorted(images) == [0, 1]
    assert (images[0].leader, images[0].leader_epoch) == (None, 6)
    assert (images[1].leader, images[1].leader_epoch, images[1].isr) == (ONE, 5, (ONE,))


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
