"""Share groups in a cluster: state at share coordinators of other brokers, failovers, and requests that are lost."""

from typing import Any

import pytest

from broker.cluster_world import ONE, THREE, TOPIC, TWO, Cluster, plays
from respool.broker.coordinators.share_coordinators import coordinator_name
from respool.coordination.share.share_state import ShareKey, ShareStateUpdate, StateBatch
from respool.coordination.share_states.share_state_requests import InitialState, StateSummary
from respool.model.errors import FencedLeaderEpoch
from respool.model.ids import BrokerId, LeaderEpoch, Offset
from respool.model.internal_topics import SHARE_GROUP_STATE
from respool.wire.api_table import Api

GROUP = "billing"
FEW = {
    "offsets_topic_partitions": 1,
    "share_coordinator_state_topic_partitions": 3,
}


async def joined(cluster: Cluster, member: str = "one") -> Any:
    """Join through the group's coordinator, as a client does: look for it until it answers."""
    while True:
        for number in (ONE, TWO, THREE):
            if number not in cluster.nodes:
                continue
            node = cluster[number]
            await node.ask(Api.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[GROUP])
            reply = await node.ask(
                Api.SHARE_GROUP_HEARTBEAT,
                1,
                group_id=GROUP,
                member_id=member,
                member_epoch=0,
                rack_id=None,
                subscribed_topic_names=[TOPIC],
            )
            if reply.error_code == 0:
                return reply
        await cluster.pass_time(100)


def key_at(cluster: Cluster, number: BrokerId) -> ShareKey:
    """A share partition whose state is with this broker."""
    broker = cluster[ONE].broker
    runtimes = broker.coordinators.shares.runtimes
    topic_id = broker.image.topics[TOPIC].id
    return next(
        key
        for key in (ShareKey(f"group-{one}", topic_id, 0) for one in range(1_000))
        if runtimes.leader_of(coordinator_name(key)).id == number
    )


def accepted(leader: int, first: int, last: int) -> ShareStateUpdate:
    return ShareStateUpdate(
        state_epoch=0,
        leader_epoch=LeaderEpoch(leader),
        start_offset=Offset(0),
        finished_count=last - first + 1,
        batches=(StateBatch(first, last, 2, 1), StateBatch(last + 1, last + 1, 0, 1, 77)),
    )


@plays(brokers=3, **FEW)
async def test_a_group_gets_its_partitions_wherever_their_state_is(cluster: Cluster) -> None:
    await cluster.create(*([[1, 2, 3]] * 4))
    reply = await joined(cluster)
    (topic,) = reply.assignment.topic_partitions
    assert list(topic.partitions) == [0, 1, 2, 3]
    leaders = {one.leader for one in cluster[ONE].broker.image.topics[SHARE_GROUP_STATE].partitions}
    assert len(leaders) > 1


@plays(brokers=2, **FEW)
async def test_state_is_written_and_read_through_another_broker(cluster: Cluster) -> None:
    await cluster.create([1, 2])
    await joined(cluster)
    key = key_at(cluster, TWO)
    states = cluster[ONE].broker.coordinators.share_states
    assert await states.initialize({key: InitialState(0, Offset(0))}) == {key: None}
    assert (await states.read(key, LeaderEpoch(3))).leader_epoch == 3
    await states.write(key, accepted(3, 0, 4))
    # Due times and all are the same after the way through the wire.
    read = await states.read(key, LeaderEpoch(3))
    assert read.batches == accepted(3, 0, 4).batches
    with pytest.raises(FencedLeaderEpoch):
        await states.write(key, accepted(2, 0, 4))
    (summary,) = (await states.summarize([key])).values()
    assert isinstance(summary, StateSummary)
    assert (summary.start_offset, summary.finished_count) == (0, 5)


@plays(brokers=3, **FEW)
async def test_what_was_written_survives_the_coordinator(cluster: Cluster) -> None:
    await cluster.create([1, 2, 3])
    await joined(cluster)
    key = key_at(cluster, TWO)
    states = cluster[ONE].broker.coordinators.share_states
    await states.initialize({key: InitialState(0, Offset(0))})
    await states.read(key, LeaderEpoch(0))
    await states.write(key, accepted(0, 0, 4))
    cluster[TWO].kill()

    def is_led() -> bool:
        runtimes = cluster[ONE].broker.coordinators.shares.runtimes
        topic = cluster[ONE].broker.image.topics[SHARE_GROUP_STATE]
        leader = topic.partitions[runtimes.partition_of(coordinator_name(key))].leader
        return leader in {ONE, THREE}

    await cluster.until(is_led)
    read = await states.read(key, LeaderEpoch(1))
    assert read.batches == accepted(0, 0, 4).batches
