"""What an operator is told about the cluster."""

from uuid import UUID

import pytest

from cluster.cluster_world import FIVE, FOUR, ONE, SIX, THREE, TWO, image_of, view_of
from respool.cluster.status_document import WITH_ITS_LOG, status, waits_for
from respool.model.cluster import PartitionImage, TopicRules
from respool.model.ids import TopicPartition


def test_a_cluster_that_is_well_says_so() -> None:
    told = status(view_of(image_of(1, 2), image_of(2, 1)))
    assert told.is_well
    assert told.partition_count == 2
    assert (told.brokers[ONE].replicas, told.brokers[ONE].leads, told.brokers[ONE].behind) == (
        2,
        1,
        0,
    )


def test_what_is_not_well_is_named() -> None:
    view = view_of(
        image_of(1, 2, isr=[1]),
        image_of(2, 1, isr=[], elr=(TWO,)),
        image_of(1, 3),
        image_of(1, 3, 4, isr=[1, 3], adding=(FOUR,)),
        live=(1, 3),
        stopping=[3],
        drained=[6],
        rules=TopicRules(min_isr=2),
        missing_since_ms={TWO: 5},
    )
    told = status(view)
    partitions = [TopicPartition("t", number) for number in range(4)]
    assert not told.is_well
    assert told.leaderless == (partitions[1],)
    assert told.under_min_isr == (partitions[0], partitions[1])
    # A replica that is only being added is no reason for alarm.
    assert told.under_replicated == (partitions[0], partitions[1])
    assert told.moving == (partitions[3],)
    assert (told.brokers[TWO].is_live, told.brokers[TWO].missing_since_ms) == (False, 5)
    assert (told.brokers[TWO].replicas, told.brokers[TWO].behind) == (2, 2)
    assert told.brokers[SIX].is_drained


def test_what_a_broker_led_is_offline_from_its_end_until_somebody_takes_over() -> None:
    # Broker 1 is gone, and the controller has not written anything yet.
    before = status(view_of(image_of(1, 2), image_of(2, 1), live=(2, 3)))
    assert before.leaderless == (TopicPartition("t", 0),)
    assert not before.is_well
    assert before.brokers[ONE].leads == 0
    after = status(view_of(image_of(1, 2, isr=[2], leader=2), image_of(2, 1), live=(2, 3)))
    assert after.leaderless == ()
    assert after.brokers[TWO].leads == 2


def test_everything_is_offline_when_every_broker_is_stopped() -> None:
    # The last one to stop finds nobody to give the lead to, so the store names it as the leader for good.
    told = status(view_of(image_of(1, 2, 3, isr=[3]), image_of(3, 1, 2, isr=[3]), live=()))
    assert told.leaderless == (TopicPartition("t", 0), TopicPartition("t", 1))
    assert told.brokers[THREE].leads == 0


def test_nobody_leads_with_a_log_that_has_failed() -> None:
    told = status(view_of(image_of(1, 2, 3, isr=[1], offline=(ONE,)), image_of(1, 2)))
    assert told.leaderless == (TopicPartition("t", 0),)
    assert told.brokers[ONE].leads == 1


@pytest.mark.parametrize(
    ("image", "waited_for"),
    [
        (image_of(1, 4), ""),
        (image_of(4, isr=[4]), "broker 4"),
        (
            image_of(4, 5, 1, isr=[], leader=None, elr=(FOUR, FIVE), last_leader=FOUR),
            "broker 4 or 5",
        ),
        (image_of(4, 5, 1, isr=[5], leader=5, elr=(FOUR,)), "broker 4 or 5"),
        (image_of(4, 1, isr=[], leader=None, last_leader=FOUR), "broker 4"),
        # It is back, and may have lost something: only somebody who knows that may have it elected.
        (image_of(1, 4, isr=[], leader=None, last_leader=ONE), "an unclean election"),
        # Somebody will be elected at once.
        (image_of(4, 1, isr=[1], leader=None, last_leader=FOUR), ""),
        (image_of(4, 1, isr=[], leader=None, elr=(ONE,), last_leader=FOUR), ""),
        (
            image_of(1, 4, isr=[], leader=None, last_leader=ONE, last_folder=UUID(int=7)),
            "broker 1 with its old data folder, or an unclean election",
        ),
        # Its log has failed.
        (
            image_of(1, 2, isr=[1], offline=(ONE,)),
            f"broker 1 {WITH_ITS_LOG}, or an unclean election",
        ),
        (
            image_of(1, 2, isr=[], leader=None, last_leader=ONE, offline=(ONE,)),
            f"broker 1 {WITH_ITS_LOG}, or an unclean election",
        ),
        (image_of(1, 4, isr=[1], elr=(FOUR,), leader=None, offline=(ONE,)), "broker 4"),
        (image_of(1, 2, isr=[1], elr=(TWO,), leader=None, offline=(ONE,)), ""),
    ],
)
def test_of_what_nobody_leads_it_is_told_what_it_waits_for(
    image: PartitionImage, waited_for: str
) -> None:
    assert str(waits_for(view_of(image), image) or "") == waited_for


def test_where_the_brokers_default_is_not_known_eligible_replicas_tell_of_too_few() -> None:
    alone = image_of(1, 2, 3, isr=[1], elr=(TWO,))
    told = status(view_of(alone, image_of(1, 2, 3), rules=TopicRules(min_isr=1)))
    assert told.under_min_isr == (TopicPartition("t", 0),)
