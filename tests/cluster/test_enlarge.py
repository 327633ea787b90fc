"""The brokers' own topics get their replicas when there are brokers for them, and lose them with those again."""

from dataclasses import replace
from typing import Any

import pytest

from cluster.cluster_world import FOUR, ONE, THREE, TWO, image_of, view_of, written
from respool.cluster.broker_requests import drain, unplaceable
from respool.cluster.controller_decisions import decide
from respool.cluster.view import ClusterView
from respool.model.cluster import PartitionImage
from respool.model.cluster_settings import ControllerSettings
from respool.model.errors import InvalidReplicationFactor
from respool.model.internal_topics import CONSUMER_OFFSETS


def internal(view: ClusterView) -> ClusterView:
    """The same, with the topic being the one of committed offsets."""
    (topic,) = view.topics.values()
    return replace(
        view,
        image=replace(view.image, topics={CONSUMER_OFFSETS: replace(topic, name=CONSUMER_OFFSETS)}),
    )


def enlarged(
    *images: PartitionImage, settings: ControllerSettings | None = None
) -> dict[int, PartitionImage]:
    return written(decide(internal(view_of(*images, settings=settings))))


def test_replicas_are_added_up_to_the_factor() -> None:
    image = enlarged(image_of(1))[0]
    assert image.replicas[0] == ONE
    assert set(image.adding) == {TWO, THREE}
    assert (image.leader, image.isr) == (ONE, (ONE,))


def test_other_topics_stay_as_they_were_made() -> None:
    assert decide(view_of(image_of(1))) == []


def test_a_topic_that_has_its_replicas_is_left_alone() -> None:
    assert enlarged(image_of(1, 2, 3)) == {}
    assert (
        enlarged(image_of(1), settings=ControllerSettings(offsets_topic_replication_factor=1)) == {}
    )


def test_no_more_are_added_than_there_are_brokers() -> None:
    view = internal(view_of(image_of(1), live=(1, 2)))
    assert written(decide(view))[0].adding == (TWO,)


def test_they_go_to_other_racks() -> None:
    racks = {ONE: "a", TWO: "a", THREE: "b", FOUR: "a"}
    two = ControllerSettings(offsets_topic_replication_factor=2)
    view = internal(view_of(image_of(1), live=racks, settings=two))
    assert written(decide(view))[0].adding == (THREE,)


def test_what_is_being_moved_or_led_by_nobody_waits() -> None:
    assert enlarged(image_of(1, 2, isr=[1], adding=(TWO,))) == {}
    gone = image_of(4, isr=[], elr=(FOUR,), last_leader=FOUR)
    assert enlarged(gone) == {}


def test_a_few_are_copied_at_a_time() -> None:
    few = ControllerSettings(copies_per_broker_max=2)
    assert set(enlarged(*[image_of(1)] * 5, settings=few)) == {0, 1}


# -- and fewer again -------------------------------------------------------------------------------------------------


def three_brokers(image: PartitionImage, **changes: Any) -> ClusterView:
    """Nobody has ever heard of a fourth."""
    view = internal(view_of(image, **changes))
    return replace(
        view,
        image=replace(view.image, registry={one: view.registry[one] for one in (ONE, TWO, THREE)}),
    )


def test_a_drained_brokers_replica_goes_where_nobody_else_can_take_it() -> None:
    """From two brokers to three and back: the topic grew by itself, and then no broker could be drained at all."""
    view = three_brokers(image_of(3, 1, 2))
    assert drain(view, THREE)
    view = three_brokers(image_of(3, 1, 2), drained=[3])
    assert unplaceable(view, THREE) == set()
    left = written(decide(view))[0]
    assert (left.replicas, left.isr, left.leader) == ((ONE, TWO), (ONE, TWO), ONE)
    # And it stays so.
    assert decide(three_brokers(left, drained=[3])) == []


def test_two_may_be_drained_of_three() -> None:
    moving = written(decide(three_brokers(image_of(3, 1, 2), drained=[2, 3])))[0]
    assert moving.target == (ONE,)


def test_a_replica_waits_for_a_broker_that_is_away_for_a_moment() -> None:
    view = internal(view_of(image_of(1, 2, 3), drained=[3]))
    assert view.registry.keys() - view.brokers.keys()
    assert decide(view) == []


def test_a_dead_brokers_replica_stays_for_it_may_come_back() -> None:
    view = three_brokers(
        image_of(1, 2, 3, isr=[1, 2]), live=(1, 2), missing_since_ms={THREE: 0}, now_ms=600_000
    )
    assert view.is_leaving(THREE)
    assert decide(view) == []


@pytest.mark.parametrize("now_ms", [1, 600_000], ids=["just now", "for good"])
def test_no_broker_is_drained_of_the_last_but_one_replica_that_is_there(now_ms: int) -> None:
    """It was begun, and then waited for the dead one, or left a single replica."""
    image = image_of(1, 2, 3, isr=[1, 3])
    dead: dict[str, Any] = {"live": (1, 3), "missing_since_ms": {TWO: 0}, "now_ms": now_ms}
    view = three_brokers(image, **dead)
    assert view.is_leaving(TWO) == (now_ms > 1)
    with pytest.raises(InvalidReplicationFactor, match="without broker 3, 1 is left"):
        drain(view, THREE)
    # Also where the dead one died only after that.
    drained = three_brokers(image, drained=[3], **dead)
    assert decide(drained) == []
    assert {one.partition for one in unplaceable(drained, THREE)} == {0}


def test_nothing_is_left_to_those_that_are_sent_away_alone() -> None:
    assert decide(three_brokers(image_of(3, 1, 2), drained=[1, 2, 3])) == []
