"""ConsumerGroupHeartbeat (KIP-848), in every version."""

import asyncio
from typing import Any
from uuid import UUID, uuid4

import pytest

from broker.group_client import (
    COORDINATOR_LOAD_IN_PROGRESS,
    GROUP_ID_NOT_FOUND,
    NOT_COORDINATOR,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    Member,
    begin_to_load,
    commit,
    committed,
    let_pass,
    restart,
    start_with_groups,
)
from broker.running_broker import RunningBroker, StartBroker
from broker.wire_client import decode_reply, encode_request, versions
from respool.broker.dispatch import handle
from respool.broker.outcome import Pipelined
from respool.wire.api_table import Api
from respool.wire.codec import decode_request

INVALID_REQUEST = 42
FENCED_MEMBER_EPOCH = 110
UNSUPPORTED_ASSIGNOR = 112
INVALID_REGULAR_EXPRESSION = 128
SESSION_TIMEOUT_MS = 45_000
HEARTBEAT_MS = 5_000
LEAVING = -1
# A classic consumer's subscription: version 0, one topic, no user data.
READS_RIDES = b"\0\0\0\0\0\1\0\5rides\xff\xff\xff\xff"
# And an assignment of the same kind, with four partitions.
HAS_ALL_RIDES = (
    b"\0\0"
    b"\0\0\0\1"
    b"\0\5rides"
    b"\0\0\0\4" + b"".join(number.to_bytes(4, "big") for number in range(4)) + b"\xff\xff\xff\xff"
)

VERSIONS = versions(Api.CONSUMER_GROUP_HEARTBEAT)
every_version = pytest.mark.parametrize("version", VERSIONS)


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    broker = start_with_groups(start_broker)
    broker.create_topic("rides", partitions=4)
    return broker


class NextMember:
    """A member that tells what it has with every heartbeat, and takes what it is told."""

    def __init__(self, broker: RunningBroker, version: int, **first: Any) -> None:
        self.broker = broker
        self.version = version
        # Before version 1 the coordinator may choose.
        self.member_id = str(uuid4()) if version >= 1 else ""
        self.epoch = 0
        self.owned: dict[UUID, tuple[int, ...]] = {}
        self.first = {"subscribed_topic_names": ["rides"], **first}

    def beat(self, **changes: Any) -> Any:
        fields: dict[str, Any] = {
            "group_id": "drivers",
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "rebalance_timeout": 30_000,
            "subscribed_topic_names": None,
            "topic_partitions": [
                {"topic_id": topic_id, "partitions": numbers}
                for topic_id, numbers in self.owned.items()
            ],
            **(self.first if self.epoch == 0 else {}),
        }
        reply = self.broker.ask(Api.CONSUMER_GROUP_HEARTBEAT, self.version, **{**fields, **changes})
        if reply.error_code == 0:
            self.member_id, self.epoch = reply.member_id, reply.member_epoch
            if reply.assignment is not None:
                self.owned = {
                    one.topic_id: one.partitions for one in reply.assignment.topic_partitions
                }
        return reply

    def beats(self, *others: "NextMember") -> None:
        """So often that all have told, given up and got what they should."""
        for _ in range(4):
            for one in (self, *others):
                assert one.beat().error_code == 0

    @property
    def partitions(self) -> list[int]:
        """What it has of the only topic there is."""
        return [number for numbers in self.owned.values() for number in numbers]


@every_version
def test_a_member_gets_everything_and_shares_it_with_the_next(
    broker: RunningBroker, version: int
) -> None:
    first, second = NextMember(broker, version), NextMember(broker, version)

    reply = first.beat()

    assert (reply.error_code, reply.error_message, reply.member_epoch) == (0, None, 1)
    assert reply.heartbeat_interval.total_seconds() * 1000 == HEARTBEAT_MS
    assert first.owned == {broker.broker.image.topics["rides"].id: (0, 1, 2, 3)}
    second.beats(first)
    assert len(first.partitions) == len(second.partitions) == 2
    assert {*first.partitions, *second.partitions} == {0, 1, 2, 3}
    assert first.epoch == second.epoch


@every_version
def test_nothing_new_is_told_by_no_assignment(broker: RunningBroker, version: int) -> None:
    member = NextMember(broker, version)
    member.beats()

    reply = member.beat(rebalance_timeout=-1, topic_partitions=None)

    assert reply.error_code == 0
    assert reply.assignment is None


@every_version
def test_a_member_leaves_and_the_others_get_its_share(broker: RunningBroker, version: int) -> None:
    first, second = NextMember(broker, version), NextMember(broker, version)
    first.beats(second)

    reply = second.beat(member_epoch=LEAVING)

    assert (reply.error_code, reply.member_epoch) == (0, LEAVING)
    first.beats()
    assert first.partitions == [0, 1, 2, 3]


@every_version
def test_a_silent_member_is_out(broker: RunningBroker, version: int) -> None:
    member = NextMember(broker, version)
    member.beats()

    let_pass(broker, SESSION_TIMEOUT_MS)

    assert member.beat().error_code == UNKNOWN_MEMBER_ID


@every_version
@pytest.mark.parametrize("crash", [False, True])
def test_a_group_goes_on_after_a_restart(broker: RunningBroker, version: int, crash: bool) -> None:
    first, second = NextMember(broker, version), NextMember(broker, version)
    first.beats(second)
    before = (first.epoch, first.owned, second.owned)

    restart(broker, crash=crash)
    first.beats(second)

    assert (first.epoch, first.owned, second.owned) == before


@every_version
def test_what_cannot_be_is_refused_with_words(broker: RunningBroker, version: int) -> None:
    member = NextMember(broker, version)
    member.beats()

    def refused(**changes: Any) -> int:
        reply = NextMember(broker, version).beat(**changes)
        assert reply.error_message
        assert reply.assignment is None
        return int(reply.error_code)

    assert refused(group_id="") == INVALID_REQUEST
    assert refused(rebalance_timeout=-1) == INVALID_REQUEST
    assert refused(server_assignor="by looks") == UNSUPPORTED_ASSIGNOR
    assert refused(member_id="stranger", member_epoch=3) == UNKNOWN_MEMBER_ID
    assert refused(group_id="nobody", member_id="x", member_epoch=3) == GROUP_ID_NOT_FOUND
    ours = {"member_id": member.member_id}
    assert refused(**ours, member_epoch=member.epoch + 1) == FENCED_MEMBER_EPOCH
    assert member.beat().error_code == 0


def test_from_version_1_members_bring_their_ids(broker: RunningBroker) -> None:
    assert NextMember(broker, 1).beat(member_id="").error_code == INVALID_REQUEST
    member = NextMember(broker, 1)
    brought = member.member_id
    assert member.beat().member_id == brought


def test_from_version_1_members_may_subscribe_by_a_pattern(broker: RunningBroker) -> None:
    member = NextMember(broker, 1, subscribed_topic_names=None, subscribed_topic_regex="ri.*")
    member.beats()
    assert member.partitions == [0, 1, 2, 3]

    broker.create_topic("rivers")
    member.beats()
    assert len(member.owned) == 2

    wrong = NextMember(broker, 1, subscribed_topic_names=None, subscribed_topic_regex="ri(")
    assert wrong.beat().error_code == INVALID_REGULAR_EXPRESSION


@every_version
def test_a_topic_that_comes_grows_and_goes_is_shared_out_accordingly(
    broker: RunningBroker, version: int
) -> None:
    member = NextMember(broker, version, subscribed_topic_names=["fares"])
    member.beats()
    assert member.partitions == []

    broker.create_topic("fares")
    member.beats()
    assert member.partitions == [0]
    broker.run(broker.broker.topics.add_partitions("fares", partition_count=3))
    member.beats()
    assert member.partitions == [0, 1, 2]
    broker.run(broker.broker.topics.delete("fares"))
    member.beats()
    assert member.partitions == []


def test_a_topic_made_while_the_groups_were_loaded_is_seen(broker: RunningBroker) -> None:
    member = NextMember(broker, 1, subscribed_topic_names=["fares"])
    member.beats()
    restart(broker, crash=False)
    groups = broker.broker.groups.runtimes

    async def load_anew() -> None:
        # As at a start, with a topic created before the log is read.
        for partition in broker.broker.partitions.of_topic(groups.topic):
            groups.on_role(partition)
        await broker.broker.topics.create("fares", partition_count=2)

    broker.run(load_anew())
    member.beats()
    assert member.partitions == [0, 1]


@every_version
def test_a_classic_group_is_taken_over_and_its_members_stay(
    broker: RunningBroker, version: int
) -> None:
    classic = Member(broker, topics=READS_RIDES, gives=HAS_ALL_RIDES)
    classic.settle()
    newcomer = NextMember(broker, version)

    assert newcomer.beat().error_code == 0

    assert classic.heartbeat() == REBALANCE_IN_PROGRESS
    classic.settle()
    newcomer.beats()
    classic.settle()
    newcomer.beats()
    assert classic.heartbeat() == 0
    assert len(newcomer.partitions) == 2


@every_version
def test_members_are_thrown_out_and_offsets_set_with_nobody_in_between(
    broker: RunningBroker, version: int
) -> None:
    """What a tool does to reset a group that is alive: heartbeats that leave, and OffsetCommit, sent in one go."""
    members = [NextMember(broker, version) for _ in range(2)]
    members[0].beats(members[1])
    leaving = [
        encode_request(
            Api.CONSUMER_GROUP_HEARTBEAT,
            version,
            group_id="drivers",
            member_id=one.member_id,
            member_epoch=LEAVING,
            rebalance_timeout=-1,
            topic_partitions=None,
        )
        for one in members
    ]
    partition = {
        "partition_index": 0,
        "committed_offset": 3,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    reset = encode_request(
        Api.OFFSET_COMMIT,
        9,
        group_id="drivers",
        member_id="",
        topics=[{"name": "rides", "partitions": [partition]}],
    )
    broker.offload.hold()

    async def one_after_the_other() -> Any:
        outcomes = [handle(decode_request(one), broker.broker) for one in (*leaving, reset)]
        assert all(isinstance(one, Pipelined) for one in outcomes)
        waiting = [asyncio.ensure_future(one.wait()) for one in outcomes]  # type: ignore[union-attr]
        broker.offload.release()
        return await waiting[-1]

    reply = decode_reply(Api.OFFSET_COMMIT, 9, b"".join(broker.run(one_after_the_other())))
    assert reply.topics[0].partitions[0].error_code == 0
    assert committed(broker, "drivers") == {("rides", 0): 3}
    assert [one.beat().error_code for one in members] == [UNKNOWN_MEMBER_ID] * 2


@every_version
def test_commits_are_for_current_members(broker: RunningBroker, version: int) -> None:
    member = NextMember(broker, version)
    member.beats()

    codes = commit(
        broker,
        "drivers",
        ("rides", 0, 7),
        member_id=member.member_id,
        generation_id_or_member_epoch=member.epoch,
    )

    assert codes == [0]
    assert commit(broker, "drivers", ("rides", 0, 9)) == [UNKNOWN_MEMBER_ID]
    assert committed(broker, "drivers") == {("rides", 0): 7}


@every_version
def test_while_the_groups_are_loaded_clients_are_told_to_ask_again(
    broker: RunningBroker, version: int
) -> None:
    begin_to_load(broker)

    assert NextMember(broker, version).beat().error_code == COORDINATOR_LOAD_IN_PROGRESS


@every_version
def test_before_anybody_looked_for_the_coordinator_there_is_none(
    running_broker: RunningBroker, version: int
) -> None:
    assert NextMember(running_broker, version).beat().error_code == NOT_COORDINATOR
