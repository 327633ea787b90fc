"""Groups over crashes: of the broker, of their members, of both."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from support.broker_process import BrokerProcess
from support.group_member import GROUP_SETTINGS, GroupMember, fill, wait_until_shared
from support.message import Place
from support.topics import Topics
from support.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("groups resuming")]

PARTITIONS = 6
CLIENTS = ("confluent", "kafka-python", "aiokafka")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", GROUP_SETTINGS) as running:
        yield running


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


class Story:
    """A topic, what was written to it so far, and members who read it."""

    def __init__(self, broker: BrokerProcess, topics: Topics) -> None:
        self.broker = broker
        self.topic = topics.new("story", partitions=PARTITIONS)
        self.group = f"group of {self.topic}"
        self.places: list[Place] = [(self.topic, number) for number in range(PARTITIONS)]
        self.written = 0

    def member(self, client: str, **options: object) -> GroupMember:
        return GroupMember(client, self.broker.address, self.group, [self.topic], **options)

    def write(self, count: int) -> None:
        """So many messages more, in every partition."""
        fill(self.broker.address, self.places, count)
        self.written += count

    def wait_until_committed(self, members: list[GroupMember]) -> None:
        def is_committed() -> bool:
            found = [one.committed for one in members]
            return all(
                max(one.get(place, 0) for one in found) == self.written for place in self.places
            )

        wait_until(is_committed, f"everything up to {self.written} committed", seconds=60)


@pytest.fixture
def story(broker: BrokerProcess, topics: Topics) -> Story:
    return Story(broker, topics)


def test_all_resume_exactly_where_they_had_committed_when_the_broker_is_killed(
    story: Story, stack: ExitStack
) -> None:
    members = [stack.enter_context(story.member(client)) for client in CLIENTS]
    wait_until_shared(members, story.places, each=2)
    story.write(20)
    story.wait_until_committed(members)

    # The members live through it and go on.
    story.broker.kill()
    story.broker.start()
    story.write(20)
    story.wait_until_committed(members)
    for place in story.places:
        owners = [one for one in members if place in one.read]
        assert [one.read[place] for one in owners] == [list(range(40))], place

    # Everybody dies at once; others come.
    story.broker.kill()
    for one in members:
        one.kill()
    story.broker.start()
    heirs = [stack.enter_context(story.member(client)) for client in CLIENTS]
    story.write(20)
    story.wait_until_committed(heirs)
    for place in story.places:
        first_read = min(one.read[place][0] for one in heirs if place in one.read)
        assert first_read == 40, place


def test_a_next_generation_group_resumes_where_it_had_committed(
    story: Story, stack: ExitStack
) -> None:
    members = [
        stack.enter_context(story.member("confluent", protocol="consumer")) for _ in range(2)
    ]
    wait_until_shared(members, story.places, each=3)
    story.write(20)
    story.wait_until_committed(members)

    story.broker.kill()
    story.broker.start()
    story.write(20)

    story.wait_until_committed(members)
    for place in story.places:
        owners = [one for one in members if place in one.read]
        assert [one.read[place] for one in owners] == [list(range(40))], place


@pytest.mark.parametrize("client", CLIENTS)
def test_a_static_member_that_comes_back_has_what_it_had_and_nobody_else_notices(
    story: Story, stack: ExitStack, client: str
) -> None:
    stays = stack.enter_context(story.member("confluent", instance_id="cab-1"))
    goes = stack.enter_context(story.member(client, instance_id="cab-2"))
    wait_until_shared([stays, goes], story.places, each=3)
    story.write(5)
    story.wait_until_committed([stays, goes])
    before = (stays.assignments, rebalances(story))

    goes.kill()
    back = stack.enter_context(story.member(client, instance_id="cab-2"))

    wait_until(lambda: back.assignment == goes.assignment, "the same share as before")
    story.write(5)
    story.wait_until_committed([stays, back])
    assert (stays.assignments, rebalances(story)) == before
    assert all(offsets == list(range(5, 10)) for offsets in back.read.values())


def rebalances(story: Story) -> int:
    return story.broker.log.count(f"group {story.group}: rebalance")
