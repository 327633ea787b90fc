"""OffsetCommit, in every version."""

from typing import Any

import pytest

from broker.group_client import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    FENCED_INSTANCE_ID,
    ILLEGAL_GENERATION,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    Member,
    begin_to_load,
    commit,
    committed,
    let_pass,
    restart,
    settled,
    start_with_groups,
)
from broker.running_broker import RunningBroker, StartBroker
from broker.wire_client import versions
from respool.model.topic_config import MINUTE_MS
from respool.wire.api_table import Api

UNKNOWN_TOPIC, UNKNOWN_TOPIC_ID = 3, 100
OFFSET_METADATA_TOO_LARGE = 12

VERSIONS = versions(Api.OFFSET_COMMIT)
every_version = pytest.mark.parametrize("version", VERSIONS)


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    broker = start_with_groups(start_broker)
    broker.create_topic("rides", partitions=3)
    return broker


@every_version
@pytest.mark.parametrize("crash", [False, True])
def test_what_a_member_commits_is_there_after_a_restart(
    broker: RunningBroker, version: int, crash: bool
) -> None:
    (member,) = settled(broker, "drivers", 1)

    assert member.commit(("rides", 0, 7), ("rides", 2, 9), version=version) == [0, 0]

    restart(broker, crash=crash)
    assert committed(broker, "drivers") == {("rides", 0): 7, ("rides", 2): 9}


@every_version
def test_without_members_anyone_may_commit(broker: RunningBroker, version: int) -> None:
    assert commit(broker, "readers", ("rides", 1, 5), version=version) == [0]
    assert commit(broker, "readers", ("rides", 1, 3), version=version) == [0]

    assert committed(broker, "readers") == {("rides", 1): 3}


@every_version
def test_what_is_not_there_does_not_keep_the_rest_from_being_committed(
    broker: RunningBroker, version: int
) -> None:
    codes = commit(
        broker,
        "drivers",
        ("rides", 0, 1),
        ("nowhere", 0, 2),
        ("rides", 3, 3),
        ("rides", -1, 4),
        ("rides", 2, 5),
        version=version,
    )

    unknown = UNKNOWN_TOPIC_ID if version >= 10 else UNKNOWN_TOPIC
    assert codes == [0, unknown, UNKNOWN_TOPIC, UNKNOWN_TOPIC, 0]
    assert committed(broker, "drivers") == {("rides", 0): 1, ("rides", 2): 5}


@every_version
def test_a_commit_for_nothing_there_is_asks_no_coordinator(
    running_broker: RunningBroker, version: int
) -> None:
    unknown = UNKNOWN_TOPIC_ID if version >= 10 else UNKNOWN_TOPIC
    assert commit(running_broker, "drivers", ("nowhere", 0, 2), version=version) == [unknown]
    assert commit(running_broker, "drivers", version=version) == []


def test_a_consumer_of_a_deleted_topic_does_not_commit_for_a_new_one_of_its_name(
    broker: RunningBroker,
) -> None:
    old = broker.topic_ref("rides")
    broker.run(broker.broker.topics.delete("rides"))
    broker.create_topic("rides", partitions=3)
    partition = {"partition_index": 0, "committed_offset": 7, "committed_metadata": None}

    reply = broker.ask(
        Api.OFFSET_COMMIT,
        10,
        group_id="drivers",
        member_id="",
        topics=[
            {**topic, "partitions": [partition]}
            for topic in (old, {"topic_id": None}, broker.topic_ref("rides"))
        ],
    )

    assert [one.topic_id for one in reply.topics] == [
        old["topic_id"],
        None,
        broker.topic_ref("rides")["topic_id"],
    ]
    codes = [one.error_code for topic in reply.topics for one in topic.partitions]
    assert codes == [UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_ID, 0]


@every_version
@pytest.mark.parametrize("text", ["", "until the bridge", "🦉" * 4_000, None])
def test_text_committed_with_an_offset_comes_back(
    broker: RunningBroker, version: int, text: str | None
) -> None:
    commit(broker, "drivers", ("rides", 0, 1), version=version, metadata=text)

    reply = broker.ask(
        Api.OFFSET_FETCH,
        3,
        group_id="drivers",
        topics=[{"name": "rides", "partition_indexes": [0]}],
    )
    assert reply.topics[0].partitions[0].metadata == (text or "")


@every_version
def test_text_that_is_too_long_is_refused_for_its_partition(
    broker: RunningBroker, version: int
) -> None:
    codes = commit(broker, "drivers", ("rides", 0, 1), version=version, metadata="x" * 4_097)

    assert codes == [OFFSET_METADATA_TOO_LARGE]
    assert committed(broker, "drivers") == {}


@pytest.mark.parametrize("version", VERSIONS[4:])
def test_the_leader_epoch_comes_back(broker: RunningBroker, version: int) -> None:
    commit(broker, "drivers", ("rides", 0, 1), version=version, leader_epoch=3)

    reply = broker.ask(Api.OFFSET_FETCH, 5, group_id="drivers", topics=None)
    assert reply.topics[0].partitions[0].committed_leader_epoch == 3


@every_version
def test_only_members_of_the_current_generation_move_the_groups_offsets(
    broker: RunningBroker, version: int
) -> None:
    (member,) = settled(broker, "drivers", 1)

    def code(**changes: Any) -> int:
        who = {
            "generation_id_or_member_epoch": member.generation,
            "member_id": member.member_id,
        }
        fields = {**who, **changes}
        return commit(broker, "drivers", ("rides", 0, 1), version=version, **fields)[0]

    assert code(generation_id_or_member_epoch=member.generation + 1) == ILLEGAL_GENERATION
    assert code(member_id="stranger") == UNKNOWN_MEMBER_ID
    assert code(member_id="", generation_id_or_member_epoch=-1) == UNKNOWN_MEMBER_ID
    assert committed(broker, "drivers") == {}
    assert code() == 0


@pytest.mark.parametrize("version", VERSIONS[5:])
def test_a_static_member_that_was_replaced_is_fenced(broker: RunningBroker, version: int) -> None:
    first = Member(broker, instance_id="cab-7")
    first.settle()
    Member(broker, instance_id="cab-7").settle()

    assert first.commit(("rides", 0, 1), version=version) == [FENCED_INSTANCE_ID]
    assert committed(broker, "drivers") == {}


@every_version
def test_between_join_and_sync_nobody_owns_anything(broker: RunningBroker, version: int) -> None:
    member = Member(broker)
    broker.run(member.join())

    assert member.commit(("rides", 0, 1), version=version) == [REBALANCE_IN_PROGRESS]


@pytest.mark.parametrize("version", VERSIONS[:3])
def test_before_version_5_a_client_says_how_long_the_offset_is_kept(
    broker: RunningBroker, version: int
) -> None:
    kept_by_broker = ("rides", 0, 1)
    commit(broker, "drivers", kept_by_broker, version=version, retention_time=-1)
    commit(broker, "drivers", ("rides", 1, 1), version=version, retention_time=MINUTE_MS)

    let_pass(broker, 10 * MINUTE_MS)

    assert committed(broker, "drivers") == {("rides", 0): 1}


@every_version
def test_a_commit_is_answered_when_it_is_on_the_disk(broker: RunningBroker, version: int) -> None:
    broker.offload.hold()
    partition = {
        "partition_index": 0,
        "committed_offset": 1,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    waiting = broker.start(
        broker.answer(
            Api.OFFSET_COMMIT,
            version,
            group_id="drivers",
            member_id="",
            topics=[{**broker.topic_ref("rides"), "partitions": [partition]}],
        )
    )
    assert not waiting.done()

    broker.run(_release(broker))

    assert broker.finish(waiting).topics[0].partitions[0].error_code == 0


@every_version
def test_a_disk_that_takes_no_more_refuses_the_commit(broker: RunningBroker, version: int) -> None:
    broker.disk.faults.capacity_bytes = 0

    assert commit(broker, "drivers", ("rides", 0, 1), version=version) == [
        COORDINATOR_NOT_AVAILABLE
    ]
    broker.disk.faults.capacity_bytes = None


@every_version
def test_while_the_groups_are_loaded_clients_are_told_to_ask_again(
    broker: RunningBroker, version: int
) -> None:
    begin_to_load(broker)

    codes = commit(broker, "drivers", ("rides", 0, 1), ("nowhere", 0, 1), version=version)

    unknown = UNKNOWN_TOPIC_ID if version >= 10 else UNKNOWN_TOPIC
    assert codes == [COORDINATOR_LOAD_IN_PROGRESS, unknown]


async def _release(broker: RunningBroker) -> None:
    broker.offload.release()
