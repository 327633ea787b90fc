"""A broker that is asked in vain says who leads instead, if it knows."""

from uuid import UUID

import pytest

from respool.broker.metadata.leader_hints import endpoints_of, leader_hint
from respool.model.cluster import BrokerEndpoint, ClusterImage, PartitionImage, TopicImage
from respool.model.ids import BrokerId, LeaderEpoch, TopicId
from respool.model.topic_config import TopicConfig

ME, OTHER, GONE = BrokerId(1), BrokerId(2), BrokerId(3)
NOT_LEADER, FENCED, STORAGE_ERROR = 6, 74, 56


def image(leader: BrokerId | None, *, offline: tuple[BrokerId, ...] = ()) -> ClusterImage:
    partition = PartitionImage(
        replicas=(ME, OTHER, GONE),
        isr=(ME,),
        leader=leader,
        leader_epoch=LeaderEpoch(7),
        offline=offline,
    )
    topic = TopicImage(
        name="rides",
        id=TopicId(UUID(int=1)),
        partitions=(partition,),
        overrides={},
        config=TopicConfig(),
    )
    return ClusterImage(
        cluster_id="c",
        brokers={
            one: BrokerEndpoint(id=one, host=f"host{one}", port=9092, rack="a")
            for one in (ME, OTHER)
        },
        controller=ME,
        topics={"rides": topic},
    )


@pytest.mark.parametrize("code", [NOT_LEADER, FENCED])
def test_another_leader_is_named_with_its_address(code: int) -> None:
    known = image(OTHER)
    hint = leader_hint(known, ME, "rides", 0, code)
    assert hint == (OTHER, 7)
    assert endpoints_of(known, [hint, None, hint]) == [(OTHER, "host2", 9092, "a")]


@pytest.mark.parametrize("leader", [None, ME, GONE])
def test_nobody_is_named_where_no_other_broker_is_known_to_lead(leader: BrokerId | None) -> None:
    assert leader_hint(image(leader), ME, "rides", 0, NOT_LEADER) is None


def test_a_leader_whose_log_has_failed_is_not_named() -> None:
    assert leader_hint(image(OTHER, offline=(OTHER,)), ME, "rides", 0, NOT_LEADER) is None


@pytest.mark.parametrize(
    ("topic", "partition", "code"),
    [("rides", 0, STORAGE_ERROR), ("rides", 0, 0), ("rides", 1, NOT_LEADER), ("no", 0, NOT_LEADER)],
)
def test_other_errors_name_nobody(topic: str, partition: int, code: int) -> None:
    assert leader_hint(image(OTHER), ME, topic, partition, code) is None
