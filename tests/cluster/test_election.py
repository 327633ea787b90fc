"""Who leads and who is in sync when brokers come and go, one rule at a time."""

from dataclasses import replace
from uuid import UUID

import pytest

from cluster.cluster_world import FOUR, ONE, THREE, TWO, image_of, view_of
from respool.cluster.election import elect, is_unclean, reelect, resign
from respool.cluster.view import ClusterView
from respool.model.cluster import PartitionImage, RegistryEntry, TopicRules
from respool.model.cluster_settings import ControllerSettings
from respool.model.ids import BrokerId

OLD, NEW = UUID(int=1), UUID(int=2)
STRICT = TopicRules(min_isr=2)


def test_a_partition_that_is_well_is_left_alone() -> None:
    image = image_of(1, 2, 3)
    assert reelect(image, STRICT, view_of()) is image


def test_a_dead_leader_is_followed_by_the_next_replica_in_sync() -> None:
    image = reelect(image_of(1, 2, 3), STRICT, view_of(live=(2, 3)))
    assert (image.leader, image.isr, image.elr) == (TWO, (TWO, THREE), ())


def test_a_dead_follower_leaves_the_isr_and_the_leader_stays() -> None:
    image = reelect(image_of(1, 2, 3), STRICT, view_of(live=(1, 3)))
    assert (image.leader, image.isr, image.elr) == (ONE, (ONE, THREE), ())


def test_a_replica_out_of_sync_is_never_elected() -> None:
    image = reelect(image_of(1, 2, isr=[1]), TopicRules(), view_of(live=(2,)))
    assert (image.leader, image.isr, image.elr, image.last_leader) == (None, (), (ONE,), ONE)


def test_who_leaves_an_isr_that_cannot_commit_any_more_stays_eligible() -> None:
    image = reelect(image_of(1, 2, 3), STRICT, view_of(live=(3,)))
    assert (image.leader, image.isr, image.elr) == (THREE, (THREE,), (ONE, TWO))


def test_the_first_eligible_replica_to_come_back_leads() -> None:
    image = reelect(
        image_of(1, 2, 3, isr=[], elr=(TWO, THREE), last_leader=THREE), STRICT, view_of(live=(2,))
    )
    assert (image.leader, image.isr, image.elr, image.last_leader) == (TWO, (TWO,), (THREE,), None)


def test_nobody_is_eligible_beside_an_isr_that_is_large_enough() -> None:
    image = reelect(image_of(1, 2, 3, isr=[1], elr=(TWO,)), TopicRules(min_isr=1), view_of())
    assert (image.leader, image.isr, image.elr) == (ONE, (ONE,), ())


def test_a_stopping_leader_hands_over_and_leaves_the_isr() -> None:
    image = reelect(image_of(1, 2, 3), STRICT, view_of(stopping=[1]))
    assert (image.leader, image.isr) == (TWO, (TWO, THREE))


def test_a_stopping_broker_helps_to_commit_where_it_is_needed() -> None:
    image = reelect(image_of(1, 2), STRICT, view_of(stopping=[1]))
    assert (image.leader, image.isr, image.elr) == (TWO, (ONE, TWO), ())


def test_a_stopping_broker_leads_on_where_it_is_alone() -> None:
    image = image_of(1, 2, isr=[1])
    assert reelect(image, TopicRules(), view_of(stopping=[1])) is image


def test_a_drained_broker_hands_over_but_stays_in_sync() -> None:
    image = reelect(image_of(1, 2, 3), STRICT, view_of(drained=[1]))
    assert (image.leader, image.isr) == (TWO, (ONE, TWO, THREE))


@pytest.mark.parametrize("is_allowed", [True, False])
def test_unclean_election_is_only_where_the_topic_allows_it(is_allowed: bool) -> None:
    rules = TopicRules(is_unclean_allowed=is_allowed)
    lost = image_of(1, 2, isr=[], elr=(ONE,), last_leader=ONE)
    view = view_of(live=(2,), missing_since_ms={ONE: 0}, now_ms=30_000)
    image = reelect(lost, rules, view)
    expected = (TWO, (TWO,), ()) if is_allowed else (None, (), (ONE,))
    assert (image.leader, image.isr, image.elr) == expected


def test_unclean_election_waits_for_those_who_have_everything() -> None:
    rules = TopicRules(is_unclean_allowed=True)
    lost = image_of(1, 2, isr=[], elr=(ONE,), last_leader=ONE)
    settings = ControllerSettings(unclean_wait_ms=10_000)
    for now_ms, leader in [(9_999, None), (10_000, TWO)]:
        view = view_of(live=(2,), missing_since_ms={ONE: 0}, now_ms=now_ms, settings=settings)
        assert reelect(lost, rules, view).leader == leader


def test_unclean_election_can_be_asked_for() -> None:
    lost = image_of(1, 2, isr=[], elr=(ONE,), last_leader=ONE)
    image = elect(lost, TopicRules(), view_of(live=(2,)), is_unclean_asked=True)
    assert (image.leader, image.isr, image.elr) == (TWO, (TWO,), ())


@pytest.mark.parametrize(
    ("is_synced", "replicas", "leader"),
    [(True, (1, 2), 1), (False, (1, 2), None), (False, (1,), 1)],
)
def test_the_last_leader_is_enough_where_a_crash_loses_nothing_or_nobody_has_more(
    is_synced: bool, replicas: tuple[int, ...], leader: int | None
) -> None:
    crashed = image_of(*replicas, isr=[], last_leader=ONE)
    assert reelect(crashed, TopicRules(is_synced=is_synced), view_of()).leader == leader


def test_the_last_leader_waits_while_somebody_has_more() -> None:
    image = image_of(1, 2, isr=[], elr=(TWO,), last_leader=ONE)
    assert reelect(image, TopicRules(is_synced=True), view_of(live=(1,))).leader is None


@pytest.mark.parametrize("is_asked", [True, False], ids=["by hand", "by the topic"])
@pytest.mark.parametrize(
    "image",
    [
        image_of(1, 2, 3, isr=[1], offline=(ONE,)),
        image_of(1, 2, 3, isr=[1], leader=None, offline=(ONE,), last_leader=ONE),
        # After a restart with the damage still there, or a stop and a start.
        image_of(1, 2, 3, isr=[], leader=None, offline=(ONE,), last_leader=ONE),
        image_of(1, 2, 3, isr=[], leader=None, elr=(ONE,), offline=(ONE,), last_leader=ONE),
    ],
    ids=["it has just failed", "nobody leads", "it crashed", "it was stopped"],
)
def test_a_last_leader_whose_log_is_offline_does_not_keep_others_from_an_unclean_election(
    image: PartitionImage, is_asked: bool
) -> None:
    """Its broker runs, so it was chosen again, or said to lead still; until it was stopped with all its partitions."""
    rules = TopicRules(is_synced=True)
    settled = reelect(image, rules, view_of())
    # Nobody has asked for it: what only the last leader has is waited for.
    assert settled == replace(image, leader=None, last_leader=ONE)
    if is_asked:
        elected = elect(settled, rules, view_of(), is_unclean_asked=True)
    else:
        elected = reelect(settled, replace(rules, is_unclean_allowed=True), view_of())
    assert (elected.leader, elected.isr, elected.elr) == (TWO, (TWO,), ())
    assert elected.offline == (ONE,)
    assert is_unclean(TWO, settled, rules, view_of())


def test_who_has_everything_is_elected_before_one_whose_log_is_offline() -> None:
    for image in (
        image_of(1, 2, 3, isr=[1, 2], offline=(ONE,)),
        image_of(1, 2, 3, isr=[1], elr=(TWO,), offline=(ONE,)),
    ):
        elected = reelect(image, STRICT, view_of())
        # It may have lost what it had, so it is not eligible.
        assert (elected.leader, elected.isr, elected.elr) == (TWO, (TWO,), ())


def test_a_follower_whose_log_is_offline_is_not_in_sync() -> None:
    image = reelect(image_of(1, 2, 3, offline=(TWO,)), STRICT, view_of())
    assert (image.leader, image.isr, image.elr) == (ONE, (ONE, THREE), ())


def test_a_log_that_is_in_order_again_is_led() -> None:
    failed = image_of(1, 2, isr=[1], leader=None, last_leader=ONE, offline=(ONE,))
    assert reelect(failed, STRICT, view_of()) == failed
    led = reelect(replace(failed, offline=()), STRICT, view_of())
    assert (led.leader, led.isr, led.last_leader) == (ONE, (ONE,), None)


def test_who_is_eligible_stays_so_while_those_in_sync_are_offline() -> None:
    """1. The only one in sync fails, and an eligible one is away.   2. One would be enough to commit now."""
    image = image_of(1, 2, 3, isr=[1], elr=(TWO,), leader=None, last_leader=ONE, offline=(ONE,))
    assert reelect(image, TopicRules(min_isr=1), view_of(live=(1, 3))) == image
    assert reelect(image, TopicRules(min_isr=1), view_of()).leader == TWO


def test_a_topic_that_allows_unclean_election_waits_for_who_has_everything_and_is_away() -> None:
    image = image_of(1, 2, 3, isr=[1], elr=(TWO,), leader=None, last_leader=ONE, offline=(ONE,))
    rules = TopicRules(min_isr=2, is_unclean_allowed=True)
    for missing_for_ms, leader in [(29_999, None), (30_000, THREE)]:
        view = view_of(live=(1, 3), missing_since_ms={TWO: 0}, now_ms=missing_for_ms)
        assert reelect(image, rules, view).leader == leader


class TestStepBack:
    def test_after_a_clean_stop_one_keeps_its_place_but_does_not_lead(self) -> None:
        image = resign(image_of(1, 2), ONE, STRICT, was_clean=True)
        assert (image.leader, image.isr, image.last_leader) == (None, (ONE, TWO), ONE)

    def test_after_a_crash_one_is_neither_in_sync_nor_eligible(self) -> None:
        image = resign(image_of(1, 2, 3), TWO, STRICT, was_clean=False)
        assert (image.leader, image.isr, image.elr) == (ONE, (ONE, THREE), ())
        eligible = image_of(1, 2, 3, isr=[1], elr=(TWO, THREE))
        image = resign(eligible, TWO, STRICT, was_clean=False)
        assert (image.leader, image.isr, image.elr) == (ONE, (ONE,), (THREE,))

    def test_who_was_the_last_to_have_everything_is_remembered(self) -> None:
        image = resign(image_of(1, 2, isr=[1]), ONE, STRICT, was_clean=False)
        assert (image.leader, image.isr, image.elr, image.last_leader) == (None, (), (), ONE)

    @pytest.mark.parametrize("was_clean", [True, False])
    def test_where_it_is_nothing_nothing_changes(self, was_clean: bool) -> None:
        image = image_of(1, 2, FOUR, isr=[1, 2])
        assert resign(image, FOUR, STRICT, was_clean=was_clean) is image

    def test_the_folder_that_the_last_leader_has_left_is_remembered(self) -> None:
        """Also where it was known as the last leader before."""
        led = resign(image_of(1, 2, isr=[1]), ONE, STRICT, was_clean=False, left_folder=OLD)
        assert (led.leader, led.last_leader, led.last_folder) == (None, ONE, OLD)
        known = image_of(1, 2, isr=[], leader=None, last_leader=ONE)
        assert resign(known, ONE, STRICT, was_clean=False, left_folder=OLD).last_folder == OLD
        # It comes with a third one, then with the first again: that is still what is waited for.
        assert resign(led, ONE, STRICT, was_clean=False, left_folder=NEW) == led
        assert resign(led, ONE, STRICT, was_clean=False) == led

    def test_who_has_everything_takes_the_place_of_one_that_has_left_its_folder(self) -> None:
        """1. Two are in sync, and crash.   2. One comes with an empty disk.   3. The other one has everything."""
        image = resign(image_of(1, 2), ONE, STRICT, was_clean=False, left_folder=OLD)
        image = resign(image, TWO, STRICT, was_clean=False)
        assert (image.isr, image.elr) == ((), ())
        assert (image.last_leader, image.last_folder) == (TWO, None)


def with_folders(view: ClusterView, **folders: UUID) -> ClusterView:
    """`of_1=...`: broker 1 has this data folder."""
    registry = {
        BrokerId(int(name.removeprefix("of_"))): RegistryEntry(folder=folder)
        for name, folder in folders.items()
    }
    return replace(view, image=replace(view.image, registry={**view.registry, **registry}))


@pytest.mark.parametrize("replicas", [(1, 2), (1,)])
def test_a_last_leader_with_another_folder_does_not_lead_until_it_has_its_own_again(
    replicas: tuple[int, ...],
) -> None:
    """
    1. All stop, this one last.   2. Its disk is not mounted when it is started.   3. It led with an empty log, and the
       others, which had all, dropped what they had.
    """
    image = image_of(*replicas, isr=[], leader=None, last_leader=ONE, last_folder=OLD)
    rules = TopicRules(is_synced=True)
    assert reelect(image, rules, with_folders(view_of(), of_1=NEW)) == image
    led = reelect(image, rules, with_folders(view_of(), of_1=OLD))
    assert (led.leader, led.isr, led.last_leader, led.last_folder) == (ONE, (ONE,), None, None)


def test_in_an_unclean_election_who_has_left_its_folder_comes_last() -> None:
    image = image_of(1, 2, isr=[], leader=None, last_leader=ONE, last_folder=OLD)
    rules = TopicRules(is_synced=True)
    everyone = with_folders(view_of(), of_1=NEW)
    assert elect(image, rules, everyone, is_unclean_asked=True).leader == TWO
    alone = with_folders(view_of(live=(1,)), of_1=NEW)
    assert elect(image, rules, alone, is_unclean_asked=True).leader == ONE


@pytest.mark.parametrize(
    ("leader", "folder", "is_synced", "unclean"),
    [
        (ONE, OLD, True, False),
        # What it had not synced may be lost.
        (ONE, OLD, False, True),
        (ONE, NEW, True, True),
        (TWO, OLD, True, True),
    ],
    ids=["the last leader", "not synced", "with another folder", "somebody"],
)
def test_who_is_elected_with_all_that_was_committed_is_not_called_unclean(
    leader: BrokerId, folder: UUID, is_synced: bool, unclean: bool
) -> None:
    image = image_of(1, 2, isr=[], leader=None, last_leader=ONE, last_folder=OLD)
    view = view_of(image)
    view = replace(
        view,
        image=replace(view.image, registry={**view.registry, ONE: RegistryEntry(folder=folder)}),
    )
    assert is_unclean(leader, image, TopicRules(is_synced=is_synced), view) == unclean
    for complete in (image_of(1, 2), image_of(3, 1, 2, isr=[3], elr=(ONE, TWO))):
        assert not is_unclean(leader, complete, TopicRules(is_synced=is_synced), view)
