"""Who leads, as clients are told: nobody sends them to a broker that is probably dead."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from respool.broker.handlers.support.leadership import (
    NO_LEADER,
    Unreached,
    endpoints_of,
    leader_hint,
    leadership,
    unreached_by,
)
from respool.model.cluster import BrokerEndpoint, ClusterImage, PartitionImage, TopicImage
from respool.model.errors import LeaderNotAvailable, ListenerNotFound
from respool.model.ids import BrokerId, LeaderEpoch, TopicId
from respool.model.security.principal import NO_SESSION, ClientSession
from respool.model.topic_config import TopicConfig
from respool.wire.api_table import Api

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
TOPIC = TopicImage(
    name="rides",
    id=TopicId(UUID(int=1)),
    partitions=tuple(
        PartitionImage(
            replicas=(ONE, TWO, THREE),
            isr=(ONE, TWO, THREE),
            leader=leader,
            leader_epoch=LeaderEpoch(4),
        )
        for leader in (ONE, TWO, THREE)
    ),
    overrides={},
    config=TopicConfig(),
)
ME, OTHER, GONE = BrokerId(1), BrokerId(2), BrokerId(3)
NOT_LEADER, FENCED, STORAGE_ERROR = 6, 74, 56


NONE_UNREACHED = Unreached(frozenset(), ListenerNotFound.code)


def told(
    *,
    live: set[BrokerId],
    suspects: set[BrokerId],
    topic: TopicImage = TOPIC,
    unreached: Unreached = NONE_UNREACHED,
) -> list[tuple[int, int]]:
    """The error and the leader of each partition, as broker 1 tells them."""
    broker: Any = SimpleNamespace(
        id=ONE,
        image=SimpleNamespace(
            brokers={one: BrokerEndpoint(id=one, host="host", port=9092) for one in live}
        ),
        partitions=SimpleNamespace(is_online=lambda topic, number: True),
        member=SimpleNamespace(suspects=suspects),
    )
    return [
        (one.error_code, one.leader)
        for one in leadership(broker, topic, range(3), unreached=unreached)
    ]


@pytest.mark.parametrize(
    ("api", "version", "code"),
    [
        (Api.METADATA, 5, LeaderNotAvailable.code),
        (Api.METADATA, 6, ListenerNotFound.code),
        (Api.DESCRIBE_TOPIC_PARTITIONS, 0, ListenerNotFound.code),
    ],
)
def test_a_leader_without_the_listener_of_the_client_is_not_told(
    api: Api, version: int, code: int
) -> None:
    brokers = {
        one: BrokerEndpoint(
            id=one,
            host="host",
            port=9092,
            listeners=() if one == TWO else (("secured", "host", 9094),),
        )
        for one in (ONE, TWO, THREE)
    }
    request: Any = SimpleNamespace(
        api=SimpleNamespace(key=api),
        version=version,
        session=ClientSession(host="10.0.0.7", listener="secured"),
    )
    image: Any = SimpleNamespace(brokers=brokers)
    unreached = unreached_by(request, image)
    assert told(live={ONE, TWO, THREE}, suspects=set(), unreached=unreached) == [
        (0, ONE),
        (code, NO_LEADER),
        (0, THREE),
    ]


def test_leaders_that_run_are_told() -> None:
    assert told(live={ONE, TWO, THREE}, suspects=set()) == [(0, ONE), (0, TWO), (0, THREE)]


def test_a_leader_that_is_probably_dead_is_not() -> None:
    nobody = (LeaderNotAvailable.code, NO_LEADER)
    assert told(live={ONE, TWO, THREE}, suspects={TWO}) == [(0, ONE), nobody, (0, THREE)]
    assert told(live={ONE, THREE}, suspects=set()) == [(0, ONE), nobody, (0, THREE)]


def test_nor_is_one_whose_log_has_failed() -> None:
    failed = replace(
        TOPIC, partitions=tuple(replace(one, offline=(TWO,)) for one in TOPIC.partitions)
    )
    nobody = (LeaderNotAvailable.code, NO_LEADER)
    live = {ONE, TWO, THREE}
    assert told(live=live, suspects=set(), topic=failed) == [(0, ONE), nobody, (0, THREE)]


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
    assert endpoints_of(known, [hint, None, hint], NO_SESSION) == [(OTHER, "host2", 9092, "a")]


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
