"""Clients that share the partitions of a topic: among their like, with each other, and when one of them is gone."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from support.broker_process import BrokerProcess
from support.group_member import (
    GROUP_SETTINGS,
    SESSION_TIMEOUT_MS,
    GroupMember,
    fill,
    wait_until_shared,
)
from support.message import Place
from support.topics import Topics
from support.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("groups sharing")]

PARTITIONS = 6
MESSAGES = 5


class Way(NamedTuple):
    """How a client shares out; with the protocol "consumer" it is the broker that does."""

    client: str
    strategy: str
    protocol: str = "classic"


WAYS = [
    Way("confluent", "range"),
    Way("confluent", "roundrobin"),
    Way("confluent", "cooperative-sticky"),
    Way("confluent", "uniform", "consumer"),
    Way("confluent", "range", "consumer"),
    Way("kafka-python", "range"),
    Way("kafka-python", "roundrobin"),
    Way("kafka-python", "sticky"),
    Way("kafka-python", "cooperative-sticky"),
    Way("aiokafka", "range"),
    Way("aiokafka", "roundrobin"),
    Way("aiokafka", "sticky"),
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", GROUP_SETTINGS) as running:
        yield running


@pytest.fixture
def places(broker: BrokerProcess, topics: Topics) -> list[Place]:
    """The partitions of a new topic, with a few messages in each."""
    topic = topics.new("shared", partitions=PARTITIONS)
    places = [(topic, number) for number in range(PARTITIONS)]
    fill(broker.address, places, MESSAGES)
    return places


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def wait_until_all_is_read(members: list[GroupMember], places: list[Place]) -> None:
    def is_read() -> bool:
        found = [one.read for one in members]
        return all(
            {offset for read in found for offset in read.get(place, ())} == set(range(MESSAGES))
            for place in places
        )

    wait_until(is_read, "every message read by someone")


@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_six_partitions_are_two_for_each_of_three_and_three_when_one_leaves(
    broker: BrokerProcess, places: list[Place], stack: ExitStack, way: Way
) -> None:
    topic = places[0][0]
    members = [
        stack.enter_context(
            GroupMember(
                way.client,
                broker.address,
                f"group of {topic}",
                [topic],
                strategy=way.strategy,
                protocol=way.protocol,
            )
        )
        for _ in range(3)
    ]
    wait_until_shared(members, places, each=2)
    wait_until_all_is_read(members, places)
    members[0].stop()
    wait_until_shared(members[1:], places, each=3)


@pytest.mark.parametrize(("strategy", "victim"), [("range", 0), ("roundrobin", 1)])
def test_members_of_different_clients_share_one_group_and_take_over_from_one_that_is_killed(
    broker: BrokerProcess, places: list[Place], stack: ExitStack, strategy: str, victim: int
) -> None:
    topic = places[0][0]
    members = [
        stack.enter_context(
            GroupMember(client, broker.address, f"mixed {topic}", [topic], strategy=strategy)
        )
        for client in ("confluent", "kafka-python", "aiokafka")
    ]
    wait_until_shared(members, places, each=2)
    wait_until_all_is_read(members, places)
    members.pop(victim).kill()
    wait_until_shared(members, places, each=3, seconds=SESSION_TIMEOUT_MS / 1000 + 10)


def test_a_group_goes_over_to_the_next_generation_protocol_and_back_while_it_is_alive(
    broker: BrokerProcess, topics: Topics, places: list[Place], stack: ExitStack
) -> None:
    topic = places[0][0]
    group = f"upgraded {topic}"
    classic = [
        stack.enter_context(GroupMember(client, broker.address, group, [topic], strategy="range"))
        for client in ("kafka-python", "aiokafka")
    ]
    wait_until_shared(classic, places, each=3)

    newcomer = stack.enter_context(
        GroupMember("confluent", broker.address, group, [topic], protocol="consumer")
    )
    wait_until_shared([*classic, newcomer], places, each=2)
    broker.wait_for_log(f"group {group}: a consumer group from now on")

    newcomer.stop()
    wait_until_shared(classic, places, each=3)
    broker.wait_for_log(f"group {group}: a classic group from now on")
    wait_until_all_is_read([*classic, newcomer], places)


def test_a_killed_member_of_a_next_generation_group_is_missed_too(
    broker: BrokerProcess, places: list[Place], stack: ExitStack
) -> None:
    topic = places[0][0]
    members = [
        stack.enter_context(
            GroupMember("confluent", broker.address, f"next {topic}", [topic], protocol="consumer")
        )
        for _ in range(3)
    ]
    wait_until_shared(members, places, each=2)
    members.pop().kill()
    wait_until_shared(members, places, each=3)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_partitions_added_to_a_topic_are_shared_out_too(
    broker: BrokerProcess, topics: Topics, stack: ExitStack, protocol: str
) -> None:
    topic = topics.new("growing", partitions=2)
    members = [
        stack.enter_context(
            GroupMember("confluent", broker.address, f"growing {topic}", [topic], protocol=protocol)
        )
        for _ in range(2)
    ]
    wait_until_shared(members, [(topic, 0), (topic, 1)], each=1)
    topics.grow(topic, partitions=4)
    wait_until_shared(members, [(topic, number) for number in range(4)], each=2)
