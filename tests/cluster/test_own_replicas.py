"""A replica whose log has failed: what its broker tells of it."""

import pytest

from cluster.cluster_world import ONE, THREE, TWO, image_of
from respool.cluster.own_replicas import clear_offline, mark_offline
from respool.model.cluster import TopicRules

STRICT = TopicRules(min_isr=2)
ALL = (ONE, TWO, THREE)


def test_it_is_left_to_another_that_has_everything() -> None:
    image = mark_offline(image_of(1, 2, 3), ONE, STRICT, live=ALL)
    assert (image.leader, image.isr, image.offline) == (None, (TWO, THREE), (ONE,))
    assert image.leader_epoch == 6


@pytest.mark.parametrize(
    ("offline", "live"), [((TWO,), ALL), ((), (ONE, THREE))], ids=["offline too", "away"]
)
def test_one_that_could_not_lead_is_no_heir(
    offline: tuple[int, ...], live: tuple[int, ...]
) -> None:
    before = image_of(1, 2, 3, isr=[1], elr=(TWO,), offline=offline)
    image = mark_offline(before, ONE, STRICT, live=live)  # type: ignore[arg-type]
    assert (image.leader, image.isr, image.elr) == (ONE, (ONE,), (TWO,))
    assert image.leader_epoch == before.leader_epoch
    assert image.offline == (*offline, ONE)


def test_what_was_told_is_not_told_again() -> None:
    for before in (
        image_of(1, 2, isr=[1], offline=(ONE,)),
        image_of(2, 1, isr=[2], offline=(ONE,)),
    ):
        assert mark_offline(before, ONE, STRICT, live=ALL) is before


def test_a_trouble_that_passes_takes_it_out_of_the_isr_and_no_more() -> None:
    image = mark_offline(image_of(2, 1, 3), ONE, STRICT, live=ALL, is_passing=True)
    assert (image.isr, image.offline) == ((TWO, THREE), ())
    alone = image_of(1, 2, isr=[1])
    assert mark_offline(alone, ONE, STRICT, live=ALL, is_passing=True) is alone


def test_who_takes_it_back_speaks_for_itself() -> None:
    image = image_of(1, 2, 3, isr=[1], leader=None, offline=(TWO, ONE))
    assert clear_offline(image, ONE) == image_of(1, 2, 3, isr=[1], leader=None, offline=(TWO,))
