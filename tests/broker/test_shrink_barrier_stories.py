"""Readers of an heir wait for groups that other brokers coordinate."""

import asyncio
from collections.abc import Callable
from typing import Any

from broker.cluster_world import ONE, TWO, Cluster, Node, plays
from broker.test_shrink_stories import shrink, topic
from respool.cluster.layout_requests import is_handed_over
from respool.model.ids import BrokerId
from respool.records.batch import RecordBatch
from respool.records.record import read_records
from respool.records.validate import walk_batches
from respool.wire.api_table import Api

# ConsumerProtocol: version 0, one topic, no user data.
SUBSCRIPTION = b"\x00\x00" + b"\x00\x00\x00\x01" + b"\x00\x05rides" + b"\xff\xff\xff\xff"
# Not served yet: the coordinator's partition is being created, or loaded.
NOT_YET = {14, 15, 16}
GROUPS: dict[str, Any] = {"offsets_topic_partitions": 4, "group_initial_rebalance_delay_ms": 0}
SEALED, HEIR = 3, 1


async def asked(node: Node, api: Api, version: int, **fields: Any) -> Any:
    """The reply, once the coordinator serves."""
    while True:
        reply = await node.ask(api, version, **fields)
        if getattr(reply, "error_code", 0) not in NOT_YET:
            return reply
        await asyncio.sleep(0.05)


async def group_of(cluster: Cluster, coordinator: BrokerId) -> str:
    """The name of a group that this broker coordinates."""
    for number in range(100):
        name = f"drivers-{number}"
        reply = await asked(cluster[ONE], Api.FIND_COORDINATOR, 2, key=name, key_type=0)
        assert reply.error_code == 0
        if reply.node_id == coordinator:
            return name
    raise AssertionError(f"broker {coordinator} coordinates nothing")


class Classic:
    """The only member of a classic group."""

    commit_version = 8

    def __init__(self, node: Node, group: str) -> None:
        self.node = node
        self.who: dict[str, Any] = {"group_id": group}

    async def join(self) -> None:
        joining: dict[str, Any] = {
            "session_timeout": 1_000_000,
            "rebalance_timeout": 1_000_000,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": SUBSCRIPTION}],
        }
        joined = await asked(self.node, Api.JOIN_GROUP, 9, **self.who, member_id="", **joining)
        me = {"member_id": joined.member_id}
        joined = await asked(self.node, Api.JOIN_GROUP, 9, **self.who, **me, **joining)
        assert joined.error_code == 0
        self.who |= {"member_id": joined.member_id, "group_instance_id": None}
        synced = await asked(
            self.node,
            Api.SYNC_GROUP,
            5,
            **self.who,
            generation_id=joined.generation_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[{"member_id": joined.member_id, "assignment": b"all"}],
        )
        assert synced.error_code == 0
        self.who["generation_id_or_member_epoch"] = joined.generation_id

    async def commit(self, number: int, offset: int) -> None:
        at = {
            "partition_index": number,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        reply = await self.node.ask(
            Api.OFFSET_COMMIT,
            self.commit_version,
            **self.who,
            topics=[{"name": "rides", "partitions": [at]}],
        )
        assert reply.topics[0].partitions[0].error_code == 0


class NextGeneration(Classic):
    """The only member of a KIP-848 group."""

    commit_version = 9

    async def join(self) -> None:
        reply = await asked(
            self.node,
            Api.CONSUMER_GROUP_HEARTBEAT,
            0,
            **self.who,
            member_id="",
            member_epoch=0,
            instance_id=None,
            rack_id=None,
            rebalance_timeout=1_000_000,
            subscribed_topic_names=["rides"],
            server_assignor=None,
            topic_partitions=[],
        )
        assert reply.error_code == 0
        self.who |= {
            "member_id": reply.member_id,
            "group_instance_id": None,
            "generation_id_or_member_epoch": reply.member_epoch,
        }


def is_held(cluster: Cluster) -> bool:
    handover = topic(cluster).partitions[HEIR].handover
    return handover is not None and handover.hold is not None


async def shown(cluster: Cluster, number: int) -> list[bytes]:
    """What consumers are shown of the partition by its leader."""
    leader = topic(cluster).partitions[number].leader
    assert leader is not None
    data = bytes((await cluster.fetch(0, at=leader, number=number)).records or b"")
    return [
        record.value or b""
        for at, header in walk_batches(data)
        for record in read_records(RecordBatch(header, data[at : at + header.size]), limit=1 << 20)
    ]


async def shrink_with_unread_records(cluster: Cluster) -> None:
    for value in (b"a", b"b"):
        assert (await cluster.produce(value, at=ONE, number=SEALED)).error_code == 0
    await shrink(cluster, 2)
    await cluster.until(lambda: is_handed_over(topic(cluster)))
    assert (await cluster.produce(b"c", at=ONE, number=SEALED)).error_code == 0


def story(kind: type[Classic]) -> Callable[[], None]:
    @plays(brokers=2, **GROUPS)
    async def test(cluster: Cluster) -> None:
        await cluster.create(*([(1, 2)] * 4))
        member = kind(cluster[TWO], await group_of(cluster, TWO))
        await member.join()
        await shrink_with_unread_records(cluster)
        await cluster.pass_time(5_000)
        await member.commit(SEALED, 1)
        await cluster.pass_time(5_000)
        assert is_held(cluster)
        assert await shown(cluster, HEIR) == []
        assert await shown(cluster, SEALED) == [b"a", b"b"]
        await member.commit(SEALED, 2)
        await cluster.until(lambda: not is_held(cluster))
        assert await shown(cluster, HEIR) == [b"c"]

    return test


test_an_heir_waits_for_a_classic_group_of_another_broker = story(Classic)
test_an_heir_waits_for_a_next_generation_group_of_another_broker = story(NextGeneration)


@plays(brokers=2, **GROUPS)
async def test_an_heir_whose_leader_cannot_ask_for_groups_waits_for_the_whole_time(
    cluster: Cluster,
) -> None:
    await cluster.create(*([(1,)] * 4))
    await group_of(cluster, TWO)
    cluster.cut(ONE, TWO)
    await shrink_with_unread_records(cluster)
    await cluster.pass_time(29_000)
    assert is_held(cluster)
    await cluster.pass_time(2_000)
    assert not is_held(cluster)
    assert await shown(cluster, HEIR) == [b"c"]


@plays(brokers=2, **GROUPS, offsets_topic_replication_factor=1)
async def test_an_heir_waits_for_a_group_that_has_no_coordinator_now(cluster: Cluster) -> None:
    await cluster.create(*([(1,)] * 4))
    member = Classic(cluster[TWO], await group_of(cluster, TWO))
    await member.join()
    # Nobody can take over what this broker coordinates.
    cluster[TWO].kill()
    await cluster.until(lambda: TWO not in cluster[ONE].broker.image.brokers)
    await shrink_with_unread_records(cluster)
    await cluster.pass_time(5_000)
    assert is_held(cluster)
    await cluster[TWO].start()
    await cluster.pass_time(1_000)
    assert is_held(cluster)
    await member.commit(SEALED, 2)
    await cluster.until(lambda: not is_held(cluster))
    assert await shown(cluster, HEIR) == [b"c"]


@plays(brokers=3, **GROUPS)
async def test_readers_wait_on_when_the_leader_of_the_heir_dies(cluster: Cluster) -> None:
    await cluster.create(*([(1, 3)] * 4), min_insync_replicas=1)
    member = Classic(cluster[TWO], await group_of(cluster, TWO))
    await member.join()
    await shrink_with_unread_records(cluster)
    await cluster.until_in_sync(1, 3, number=HEIR)
    cluster[ONE].kill()
    await cluster.until(lambda: topic(cluster).partitions[HEIR].leader == BrokerId(3))
    await cluster.pass_time(2_000)
    assert is_held(cluster)
    assert await shown(cluster, HEIR) == []
    await member.commit(SEALED, 2)
    await cluster.until(lambda: not is_held(cluster))
    assert await shown(cluster, HEIR) == [b"c"]
