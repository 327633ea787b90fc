"""What a limited leader gives is shared out evenly among those who take from it."""

from collections.abc import Mapping
from uuid import UUID

from respool.cluster.copy_limit import Turns, leader_shares, limited_leaders
from respool.model.cluster import BrokerEndpoint, ClusterImage, PartitionImage, TopicImage
from respool.model.ids import BrokerId, LeaderEpoch, TopicId, TopicPartition
from respool.model.topic_config import TopicConfig

ONE, TWO, THREE, FOUR = map(BrokerId, (1, 2, 3, 4))
RATE = "leader.replication.throttled.rate"
LISTED = "leader.replication.throttled.replicas"
FIRST = TopicPartition("rides", 0)


def partition(*isr: BrokerId, adding: tuple[BrokerId, ...] = ()) -> PartitionImage:
    return PartitionImage(
        replicas=(ONE, TWO, THREE),
        isr=isr,
        leader=isr[0] if isr else None,
        leader_epoch=LeaderEpoch(1),
        adding=adding,
    )


def image_of(
    *partitions: PartitionImage,
    listed: str = "*",
    rates: Mapping[str, str] | None = None,
    running: tuple[BrokerId, ...] = (ONE, TWO, THREE),
) -> ClusterImage:
    topic = TopicImage(
        name="rides",
        id=TopicId(UUID(int=1)),
        partitions=partitions,
        overrides={},
        config=TopicConfig.parse({LISTED: listed}),
    )
    return ClusterImage(
        cluster_id="c",
        brokers={one: BrokerEndpoint(id=one, host="h", port=1) for one in running},
        controller=ONE,
        topics={topic.name: topic},
        broker_overrides={
            name: {RATE: rate} for name, rate in ({"1": "600"} if rates is None else rates).items()
        },
    )


def shares(image: ClusterImage, turns: Turns) -> dict[BrokerId, float]:
    return leader_shares(image, limited_leaders(image), turns)


def test_one_who_takes_gets_all_of_it_and_two_get_half() -> None:
    assert shares(image_of(partition(ONE, TWO)), {}) == {ONE: 600}
    assert shares(image_of(partition(ONE)), {}) == {ONE: 300}
    # A broker is one, however many partitions it takes.
    assert shares(image_of(partition(ONE), partition(ONE)), {}) == {ONE: 300}


def test_who_takes_nothing_has_no_share() -> None:
    assert shares(image_of(partition(ONE), running=(ONE, THREE)), {}) == {ONE: 600}
    waiting = image_of(partition(ONE, adding=(TWO, THREE)))
    assert shares(waiting, {TWO: [FIRST]}) == {ONE: 600}
    assert shares(waiting, {TWO: [FIRST], THREE: [FIRST]}) == {ONE: 300}


def test_what_is_not_listed_is_not_counted() -> None:
    image = image_of(partition(ONE), partition(ONE, TWO), listed="1:1")
    assert shares(image, {}) == {ONE: 600}


def test_only_leaders_that_are_limited_have_a_rate() -> None:
    image = image_of(partition(ONE), partition(TWO, ONE), rates={"2": "50"})
    assert shares(image, {}) == {TWO: 50}
    assert shares(image_of(partition(), rates={}), {}) == {}


def test_a_rate_for_all_brokers_holds_for_each_that_has_none_of_its_own() -> None:
    image = image_of(partition(ONE, TWO, THREE), rates={"": "100", "2": "50"})
    assert shares(image, {}) == {ONE: 100, TWO: 50, THREE: 100}
