"""DescribeQuorum, in every version: the controller, and the brokers that may be elected."""

from typing import Any

import pytest

from broker.cluster_world import ONE, TWO, Cluster, plays
from broker.running_broker import RunningBroker
from broker.wire_client import versions
from respool.wire.api_table import Api

UNKNOWN_TOPIC = 3
NODES_VERSION = 2
METADATA = {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}


@pytest.mark.parametrize("version", versions(Api.DESCRIBE_QUORUM))
def test_a_single_broker_is_its_own_controller(running_broker: RunningBroker, version: int) -> None:
    reply = running_broker.ask(Api.DESCRIBE_QUORUM, version, topics=[METADATA])

    assert reply.error_code == 0
    (topic,) = reply.topics
    (partition,) = topic.partitions
    assert (topic.topic_name, partition.error_code, partition.leader_id) == (
        "__cluster_metadata",
        0,
        1,
    )
    assert [one.replica_id for one in partition.current_voters] == [1]
    assert partition.high_watermark == partition.current_voters[0].log_end_offset >= 0
    assert partition.observers == ()
    if version >= NODES_VERSION:
        assert [one.node_id for one in reply.nodes] == [1]


@pytest.mark.parametrize(("topic", "number"), [("__cluster_metadata", 1), ("rides", 0)])
def test_other_partitions_have_no_quorum(
    running_broker: RunningBroker, topic: str, number: int
) -> None:
    running_broker.create_topic("rides")
    asked = {"topic_name": topic, "partitions": [{"partition_index": number}]}
    reply = running_broker.ask(Api.DESCRIBE_QUORUM, 2, topics=[asked])

    (partition,) = reply.topics[0].partitions
    assert (partition.error_code, partition.current_voters) == (UNKNOWN_TOPIC, ())
    assert "only __cluster_metadata-0" in partition.error_message


@plays(brokers=2)
async def test_the_controller_leads_and_every_broker_that_runs_may_be_elected(
    cluster: Cluster,
) -> None:
    await cluster.until(lambda: cluster[ONE].broker.image.controller in {ONE, TWO})

    async def described(at: Any) -> Any:
        reply = await cluster[at].ask(Api.DESCRIBE_QUORUM, 2, topics=[METADATA])
        return reply, reply.topics[0].partitions[0]

    reply, before = await described(ONE)
    assert before.leader_id == cluster[ONE].broker.image.controller
    assert [one.replica_id for one in before.current_voters] == [ONE, TWO]
    assert all(one.replica_directory_id for one in before.current_voters)
    assert {one.log_end_offset for one in before.current_voters} == {before.high_watermark}
    assert [
        (one.node_id, [(at.name, at.host, at.port) for at in one.listeners]) for one in reply.nodes
    ] == [(number, [("PLAINTEXT", f"127.0.0.{number}", 9092)]) for number in (ONE, TWO)]

    other = TWO if before.leader_id == ONE else ONE
    cluster[before.leader_id].kill()
    await cluster.until(lambda: cluster[other].broker.image.controller == other)
    _, after = await described(other)
    assert (after.leader_id, [one.replica_id for one in after.current_voters]) == (other, [other])
    assert after.leader_epoch > before.leader_epoch
