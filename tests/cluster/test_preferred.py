"""Leaders go back to where they should be: on request, and by themselves when too many are elsewhere."""

from dataclasses import replace

import pytest

from cluster.cluster_world import ONE, THREE, TWO, image_of, view_of, written
from respool.cluster.controller_decisions import decide
from respool.cluster.partition_requests import ElectionKind, elect_leaders
from respool.model.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    PreferredLeaderNotAvailable,
    RequestError,
    UnknownTopicOrPartition,
)
from respool.model.ids import TopicPartition

FIRST = TopicPartition("t", 0)
HOME = image_of(1, 2)
AWAY = image_of(1, 2, leader=2)


@pytest.mark.parametrize(("away", "returned"), [(0, 0), (1, 0), (2, 2)])
def test_leaders_return_by_themselves_when_more_than_a_tenth_is_elsewhere(
    away: int, returned: int
) -> None:
    view = view_of(*[HOME] * (10 - away), *[AWAY] * away)
    images = written(decide(view)).values()
    assert [(image.leader, image.leader_epoch) for image in images] == [(ONE, 6)] * returned


def test_leaders_do_not_return_while_it_is_not_time_to_look() -> None:
    view = view_of(AWAY)
    assert decide(view) != []
    assert decide(replace(view, is_leader_check_due=False)) == []


@pytest.mark.parametrize("view", [view_of(AWAY, stopping=[1]), view_of(AWAY, drained=[1])])
def test_nobody_leads_again_who_is_about_to_leave(view: object) -> None:
    images = written(decide(view))  # type: ignore[arg-type]
    assert all(image.leader == TWO for image in images.values())


def test_the_preferred_leader_is_elected_on_request() -> None:
    outcome = elect_leaders(view_of(AWAY), ElectionKind.PREFERRED, [FIRST])
    image = written(outcome.writes)[0]
    assert (image.leader, image.leader_epoch, outcome.refused) == (ONE, 6, {})


@pytest.mark.parametrize(
    ("kind", "image", "of", "error"),
    [
        (ElectionKind.PREFERRED, HOME, FIRST, ElectionNotNeeded),
        (ElectionKind.PREFERRED, image_of(1, 2, isr=[2]), FIRST, PreferredLeaderNotAvailable),
        (ElectionKind.PREFERRED, image_of(6, 2, leader=2), FIRST, PreferredLeaderNotAvailable),
        (ElectionKind.PREFERRED, HOME, TopicPartition("t", 9), UnknownTopicOrPartition),
        (ElectionKind.PREFERRED, HOME, TopicPartition("u", 0), UnknownTopicOrPartition),
        (ElectionKind.UNCLEAN, HOME, FIRST, ElectionNotNeeded),
        (
            ElectionKind.UNCLEAN,
            image_of(5, 6, isr=[], elr=(5,)),
            FIRST,
            EligibleLeadersNotAvailable,
        ),
    ],
)
def test_what_cannot_be_elected_is_refused(
    kind: ElectionKind, image: object, of: TopicPartition, error: type[RequestError]
) -> None:
    outcome = elect_leaders(view_of(image), kind, [of])  # type: ignore[arg-type]
    assert outcome.writes == []
    assert isinstance(outcome.refused[of], error)


def test_asking_for_all_leaves_out_those_that_need_nothing() -> None:
    outcome = elect_leaders(view_of(HOME, AWAY), ElectionKind.PREFERRED)
    assert set(written(outcome.writes)) == {1}
    assert outcome.refused == {}


def test_an_unclean_leader_can_be_asked_for_while_the_one_whose_log_has_failed_runs() -> None:
    """The controller may not have seen yet that it does not lead."""
    for leader in (ONE, None):
        failed = image_of(1, 2, 3, isr=[1], leader=leader, offline=(ONE,))
        outcome = elect_leaders(view_of(failed), ElectionKind.UNCLEAN, [FIRST])
        image = written(outcome.writes)[0]
        assert (image.leader, image.isr, image.offline) == (TWO, (TWO,), (ONE,))


def test_who_is_preferred_and_offline_does_not_lead() -> None:
    failed = image_of(1, 2, isr=[1], leader=None, offline=(ONE,))
    outcome = elect_leaders(view_of(failed), ElectionKind.PREFERRED, [FIRST])
    assert isinstance(outcome.refused[FIRST], PreferredLeaderNotAvailable)


def test_an_unclean_leader_is_alone_in_sync() -> None:
    lost = image_of(1, 2, 3, isr=[], elr=(ONE,), last_leader=ONE)
    outcome = elect_leaders(view_of(lost, live=(2, 3)), ElectionKind.UNCLEAN, [FIRST])
    image = written(outcome.writes)[0]
    assert (image.leader, image.isr, image.elr, image.leader_epoch) == (TWO, (TWO,), (), 6)
    assert THREE not in image.isr
