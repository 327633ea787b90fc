"""Replicas move in safe steps: add, wait, switch; another target at any time."""

from dataclasses import replace

import pytest

from cluster.cluster_world import FIVE, FOUR, ONE, SIX, THREE, TWO, image_of, view_of, written
from respool.cluster.controller_decisions import decide
from respool.cluster.partition_requests import reassign, reassignments
from respool.cluster.reassignment import is_switch_safe, retarget, switch
from respool.model.cluster import PartitionImage, TopicRules
from respool.model.errors import (
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    NoReassignmentInProgress,
    UnknownTopicOrPartition,
)
from respool.model.ids import TopicPartition

FIRST = TopicPartition("t", 0)
EVERYBODY = range(1, 7)


def test_a_move_first_adds_and_removes_nobody() -> None:
    image = retarget(image_of(1, 2, 3), (TWO, FOUR, FIVE))
    assert image.replicas == (TWO, FOUR, FIVE, ONE, THREE)
    assert (image.adding, image.removing) == ((FOUR, FIVE), (ONE, THREE))
    assert set(image.isr) == {ONE, TWO, THREE}
    assert image.leader == ONE


def test_the_switch_waits_for_all_that_are_to_stay() -> None:
    view = view_of(live=EVERYBODY)
    for isr, is_safe in [
        ([1, 2], False),
        ([1, 2, 4], False),
        ([1, 2, 4, 5], True),
        ([4, 5], False),
    ]:
        image = image_of(2, 4, 5, 1, isr=isr, adding=(FOUR, FIVE), removing=(ONE,))
        assert is_switch_safe(image, TopicRules(), view) is is_safe


def test_the_switch_does_not_wait_for_a_broker_that_is_given_up() -> None:
    image = image_of(2, 4, 1, isr=[1, 4], adding=(FOUR,), removing=(ONE,))
    for now_ms, is_safe in [(599_999, False), (600_000, True)]:
        missing = {TWO: 0}
        view = view_of(live=(1, 4), drained=[1], missing_since_ms=missing, now_ms=now_ms)
        assert is_switch_safe(image, TopicRules(), view) is is_safe
        assert not is_switch_safe(image, TopicRules(min_isr=2), view)
        # Another one could stand in for it: that one is waited for.
        view = view_of(live=(1, 4, 5), drained=[1], missing_since_ms=missing, now_ms=now_ms)
        assert not is_switch_safe(image, TopicRules(), view)


def test_nobody_is_removed_while_nobody_leads() -> None:
    image = image_of(4, 1, isr=[4], leader=None, adding=(FOUR,), removing=(ONE,))
    assert not is_switch_safe(image, TopicRules(), view_of(live=EVERYBODY))


def test_a_leader_that_leaves_is_followed_by_one_that_stays() -> None:
    moving = image_of(2, 4, 1, isr=[1, 2, 4], leader=1, adding=(FOUR,), removing=(ONE,))
    image = switch(moving, TopicRules(), view_of(live=EVERYBODY))
    assert (image.replicas, image.isr, image.leader) == ((TWO, FOUR), (TWO, FOUR), TWO)
    assert (image.adding, image.removing) == ((), ())


def test_the_controller_switches_with_a_new_epoch() -> None:
    moving = image_of(2, 4, 1, isr=[1, 2, 4], leader=2, adding=(FOUR,), removing=(ONE,))
    image = written(decide(view_of(moving, live=EVERYBODY)))[0]
    assert (image.replicas, image.leader, image.leader_epoch) == ((TWO, FOUR), TWO, 6)


def test_a_switch_that_is_not_safe_cannot_be_made() -> None:
    image = image_of(2, 1, isr=[1], adding=(TWO,), removing=(ONE,))
    with pytest.raises(AssertionError):
        switch(image, TopicRules(), view_of())


def test_another_target_drops_what_was_added_for_nothing() -> None:
    moving = retarget(image_of(1, 2), (TWO, FOUR))
    image = retarget(moving, (TWO, FIVE))
    assert (image.replicas, image.adding, image.removing) == ((TWO, FIVE, ONE), (FIVE,), (ONE,))


def test_what_was_added_and_may_be_needed_is_removed_safely() -> None:
    moving = image_of(2, 4, 1, isr=[4], adding=(FOUR,), removing=(ONE,))
    image = retarget(moving, (TWO, ONE))
    assert (image.replicas, image.adding, image.removing) == ((TWO, ONE, FOUR), (), (FOUR,))
    assert not is_switch_safe(image, TopicRules(), view_of(live=EVERYBODY))


def test_a_replica_that_is_added_is_never_gone_on_without() -> None:
    moving = image_of(2, 4, 1, isr=[1, 2], adding=(FOUR,), removing=(ONE,))
    view = view_of(live=(1, 2), drained=[1], missing_since_ms={FOUR: 0}, now_ms=600_000)
    assert view.is_dead_for_good(FOUR)
    assert not is_switch_safe(moving, TopicRules(), view)


def test_what_was_added_stays_while_nobody_else_may_have_everything() -> None:
    eligible = image_of(2, 4, 1, isr=[], elr=(FOUR,), adding=(FOUR,), removing=(ONE,))
    last = image_of(2, 4, 1, isr=[], last_leader=FOUR, adding=(FOUR,), removing=(ONE,))
    for moving in (eligible, last):
        image = retarget(moving, (TWO, ONE))
        assert (image.replicas, image.removing) == ((TWO, ONE, FOUR), (FOUR,))
        assert image.elr == moving.elr


def test_cancelling_goes_back_to_the_replicas_before() -> None:
    before = image_of(1, 2, 3)
    moving = retarget(before, (ONE, FOUR, FIVE))
    assert set(reassignments(view_of(moving))) == {FIRST}
    outcome = reassign(view_of(moving, live=EVERYBODY), {FIRST: None})
    image = written(outcome.writes)[0]
    assert set(image.replicas) == {ONE, TWO, THREE}
    assert (image.adding, image.removing) == ((), ())


def cancelled(image: PartitionImage) -> PartitionImage:
    """Itself, where that changes nothing."""
    return written(reassign(view_of(image, live=EVERYBODY), {FIRST: None}).writes).get(0, image)


def test_cancelling_twice_goes_back_to_the_same_replicas() -> None:
    """Who was being added and has caught up leaves last, and looked like one that had always been there."""
    moving = retarget(image_of(1, 2, 3), (FOUR, FIVE, SIX))
    caught_up = replace(moving, isr=(FOUR, ONE, TWO, THREE))
    once = cancelled(caught_up)
    assert (once.target, once.removing) == ((ONE, TWO, THREE), (FOUR,))
    assert cancelled(once).target == (ONE, TWO, THREE)


def test_cancelling_a_move_that_replaced_another_goes_back_to_before_both() -> None:
    moving = retarget(image_of(1, 2, 3), (FOUR, TWO, THREE))
    caught_up = replace(moving, isr=(FOUR, ONE, TWO, THREE))
    other = retarget(caught_up, (FIVE, TWO, THREE))
    assert cancelled(other).target == (ONE, TWO, THREE)


def test_what_was_before_is_forgotten_when_a_move_has_ended() -> None:
    view = view_of(live=EVERYBODY)
    moving = replace(retarget(image_of(1, 2), (ONE, THREE)), isr=(ONE, TWO, THREE))
    moved = switch(moving, TopicRules(), view)
    assert (moved.replicas, moved.origin) == ((ONE, THREE), ())
    back = retarget(retarget(image_of(1, 2), (ONE, THREE)), (ONE, TWO))
    assert (back.replicas, back.origin) == ((ONE, TWO), ())
    assert cancelled(retarget(moved, (TWO, FOUR))).target == (ONE, THREE)


def test_there_is_nothing_to_cancel_where_nothing_moves() -> None:
    outcome = reassign(view_of(image_of(1, 2)), {FIRST: None})
    assert outcome.writes == []
    assert isinstance(outcome.refused[FIRST], NoReassignmentInProgress)


@pytest.mark.parametrize("target", [(), (1, 1), (1, 99), (1, 6)])
def test_replicas_that_cannot_be_are_refused(target: tuple[int, ...]) -> None:
    view = view_of(image_of(1, 2), drained=[6], live=EVERYBODY)
    outcome = reassign(view, {FIRST: target})  # type: ignore[dict-item]
    assert outcome.writes == []
    assert isinstance(outcome.refused[FIRST], InvalidReplicaAssignment)


def test_one_partition_refused_does_not_keep_others() -> None:
    nowhere = TopicPartition("t", 7)
    view = view_of(image_of(1, 2), image_of(2, 3), live=EVERYBODY)
    outcome = reassign(view, {nowhere: (ONE,), FIRST: (ONE, SIX)})
    assert isinstance(outcome.refused[nowhere], UnknownTopicOrPartition)
    assert written(outcome.writes)[0].adding == (SIX,)


def test_the_number_of_replicas_may_be_kept() -> None:
    view = view_of(image_of(1, 2), live=EVERYBODY)
    outcome = reassign(view, {FIRST: (ONE, TWO, THREE)}, may_change_factor=False)
    assert isinstance(outcome.refused[FIRST], InvalidReplicationFactor)


def test_a_target_that_is_reached_already_is_no_write() -> None:
    view = view_of(image_of(1, 2), live=EVERYBODY)
    assert reassign(view, {FIRST: (ONE, TWO)}).writes == []
