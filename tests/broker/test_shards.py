"""Coordinators of a cluster's broker that may, for a while, not be sure of its lease."""

from broker.cluster_world import ONE, TWO, Cluster, plays
from respool.broker.partition import Partition
from respool.broker.shards import Shards
from respool.model.errors import RequestError
from respool.model.internal_topics import CONSUMER_OFFSETS
from respool.records.batch import RecordBatch, read_header
from respool.records.build import NewRecord, build_batch

FEW = {"offsets_topic_partitions": 1, "offsets_topic_replication_factor": 2}


def is_active(shards: Shards) -> bool:
    try:
        return shards.at(0).is_active
    except RequestError:
        return False


def append_something(partition: Partition) -> None:
    data = build_batch([NewRecord(key=None, value=b"of an earlier leader", timestamp_ms=0)])
    partition.append(RecordBatch(read_header(data), data), now_ms=0)


@plays(brokers=2, **FEW)
async def test_a_coordinator_begins_though_its_lease_was_in_doubt_while_it_waited(
    cluster: Cluster,
) -> None:
    """
    1. A broker begins to lead, and waits until what is there is committed.   2. It cannot be sure of its lease, so it
       lets nobody wait.   3. The lease was valid all the time: its role has not ended.
    """
    nodes = [cluster[ONE], cluster[TWO]]
    await nodes[0].run(nodes[0].broker.groups.shards.ensure_topic())
    await cluster.until(lambda: any(is_active(one.broker.groups.shards) for one in nodes))
    (node,) = (one for one in nodes if is_active(one.broker.groups.shards))
    shards, partition = node.broker.groups.shards, node.partition(topic=CONSUMER_OFFSETS)
    await cluster.until(lambda: len(cluster.image(topic=CONSUMER_OFFSETS).isr) == 2)
    cluster.cut(ONE, TWO)
    node.in_process(lambda: append_something(partition))
    node.in_process(lambda: shards.on_role(partition))
    assert not is_active(shards)
    await cluster.pass_time(10)
    node.in_process(partition.role.on_fenced)
    cluster.heal()
    await cluster.until(lambda: is_active(shards))
