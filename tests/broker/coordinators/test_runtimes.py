"""Coordinators of a cluster's broker that may, for a while, not be sure of its lease, or of its followers."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from broker.cluster_world import ONE, TOPIC, TWO, Cluster, Node, plays
from respool.broker.coordinators.runtimes import (
    ABOUT_TO_SERVE_S,
    CoordinatorRuntimes,
    java_string_hash,
    partition_for,
)
from respool.broker.partitions.partition import Partition
from respool.model.coordinator_errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
)
from respool.model.errors import RequestError
from respool.model.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from respool.records.batch import RecordBatch, read_header
from respool.records.build import NewRecord, build_batch
from respool.wire.api_table import Api

TRANSACTIONAL_ID = "charges"
FEW = {"offsets_topic_partitions": 1, "offsets_topic_replication_factor": 2}


def is_active(runtimes: CoordinatorRuntimes) -> bool:
    try:
        return runtimes.at(0).is_active
    except RequestError:
        return False


async def how_far(node: Node) -> int:
    """The error of a question how far a group has read."""
    reply = await node.ask(
        Api.OFFSET_FETCH,
        8,
        groups=[{"group_id": "riders", "topics": None}],
        require_stable=False,
    )
    return int(reply.groups[0].error_code)


def append_something(partition: Partition) -> None:
    data = build_batch([NewRecord(key=None, value=b"of an earlier leader", timestamp_ms=0)])
    partition.append(RecordBatch(read_header(data), data), now_ms=0)


async def coordinator_in(cluster: Cluster) -> Node:
    """The broker that looks after all groups."""
    nodes = [cluster[ONE], cluster[TWO]]
    await nodes[0].run(nodes[0].broker.groups.runtimes.ensure_topic())
    await cluster.until(lambda: any(is_active(one.broker.groups.runtimes) for one in nodes))
    (node,) = (one for one in nodes if is_active(one.broker.groups.runtimes))
    return node


@plays(brokers=2, **FEW)
async def test_a_coordinator_begins_though_its_lease_was_in_doubt_while_it_waited(
    cluster: Cluster,
) -> None:
    """
    1. A broker begins to lead, and waits until what is there is committed.   2. It cannot be sure of its lease, so it
       lets nobody wait.   3. The lease was valid all the time: its role has not ended.
    """
    node = await coordinator_in(cluster)
    runtimes, partition = node.broker.groups.runtimes, node.partition(topic=CONSUMER_OFFSETS)
    await cluster.until(lambda: len(cluster.image(topic=CONSUMER_OFFSETS).isr) == 2)
    cluster.cut(ONE, TWO)
    node.in_process(lambda: append_something(partition))
    node.in_process(lambda: runtimes.on_role(partition))
    assert not is_active(runtimes)
    await cluster.pass_time(10)
    node.in_process(partition.role.on_fenced)
    cluster.heal()
    await cluster.until(lambda: is_active(runtimes))


@plays(brokers=2, **FEW)
async def test_a_coordinator_whose_lease_may_be_over_tells_nothing_from_memory(
    cluster: Cluster,
) -> None:
    """
    1. A coordinator reaches its clients, and neither the store nor other brokers.   2. Another one takes over.
    3. What the first tells without writing anything is not so any more. TRAPS rule 25.
    """
    node = await coordinator_in(cluster)
    assert await how_far(node) == 0
    cluster.cut(ONE, TWO)
    node.store.conditions.is_disconnected = True
    await cluster.until(lambda: not node.broker.may_act())
    assert node.partition(topic=CONSUMER_OFFSETS).is_leading
    assert await how_far(node) == NotCoordinator.code
    node.store.conditions.is_disconnected = False


@plays(brokers=2, **FEW)
async def test_a_consumer_that_comes_while_the_groups_are_loaded_gets_its_offsets(
    cluster: Cluster,
) -> None:
    """librdkafka's consumers with assign() take an error for good, and read nothing."""
    node = await coordinator_in(cluster)
    runtimes, partition = node.broker.groups.runtimes, node.partition(topic=CONSUMER_OFFSETS)
    await cluster.until(lambda: len(cluster.image(topic=CONSUMER_OFFSETS).isr) == 2)
    cluster.cut(ONE, TWO)
    node.in_process(lambda: append_something(partition))
    node.in_process(lambda: runtimes.on_role(partition))
    asked = asyncio.ensure_future(how_far(node))
    await cluster.pass_time(100)
    assert not asked.done()
    cluster.heal()
    assert await asked == 0


@plays(brokers=2, **FEW)
async def test_a_consumer_that_comes_before_the_broker_has_read_of_the_groups_waits(
    cluster: Cluster,
) -> None:
    """Another broker, whose image was newer, has sent it here."""
    nodes = [cluster[ONE], cluster[TWO]]
    for node in nodes:
        node.store.conditions.watch_lag_ms_max = 2_000
    runtimes = [one.broker.groups.runtimes for one in nodes]
    creating = asyncio.ensure_future(nodes[0].run(runtimes[0].ensure_topic()))
    await cluster.until(lambda: runtimes[0].has_topic)
    assert not runtimes[1].has_topic
    asked = [asyncio.ensure_future(how_far(one)) for one in nodes]
    await cluster.pass_time(10)
    assert not asked[1].done()
    assert sorted([await one for one in asked]) == [0, NotCoordinator.code]
    await creating


@plays(brokers=2, **FEW, replica_lag_max_ms=60_000)
async def test_a_consumer_does_not_wait_for_ever_for_groups_that_are_not_loaded(
    cluster: Cluster,
) -> None:
    node = await coordinator_in(cluster)
    runtimes, partition = node.broker.groups.runtimes, node.partition(topic=CONSUMER_OFFSETS)
    await cluster.until(lambda: len(cluster.image(topic=CONSUMER_OFFSETS).isr) == 2)
    cluster.cut(ONE, TWO)
    node.in_process(lambda: append_something(partition))
    node.in_process(lambda: runtimes.on_role(partition))
    began = asyncio.get_running_loop().time()
    assert await how_far(node) == CoordinatorLoadInProgress.code
    assert asyncio.get_running_loop().time() - began >= ABOUT_TO_SERVE_S


@plays(brokers=2, **FEW)
async def test_nobody_waits_for_groups_of_which_there_are_none_in_the_cluster(
    cluster: Cluster,
) -> None:
    began = asyncio.get_running_loop().time()
    assert await how_far(cluster[ONE]) == NotCoordinator.code
    assert asyncio.get_running_loop().time() - began < ABOUT_TO_SERVE_S / 5


@plays(brokers=2, **FEW)
async def test_while_the_store_is_silent_a_consumer_waits_for_groups_that_may_exist(
    cluster: Cluster,
) -> None:
    node = cluster[ONE]
    node.store.conditions.is_disconnected = True
    asked = asyncio.ensure_future(how_far(node))
    await cluster.pass_time(100)
    assert not asked.done()
    node.store.conditions.is_disconnected = False
    assert await asked == NotCoordinator.code


async def admin_commit_error(node: Node) -> int:
    """The error of an administrator's commit: of a group without members."""
    partition = {
        "partition_index": 0,
        "committed_offset": 4,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    reply = await node.ask(
        Api.OFFSET_COMMIT,
        8,
        group_id="riders",
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[{"name": TOPIC, "partitions": [partition]}],
    )
    return int(reply.topics[0].partitions[0].error_code)


@plays(brokers=2, **FEW)
async def test_an_administrator_s_commit_that_comes_while_the_groups_are_loaded_takes_effect(
    cluster: Cluster,
) -> None:
    """librdkafka's AlterConsumerGroupOffsets does not retry: its user got NOT_COORDINATOR on a new cluster."""
    await cluster.create([ONE, TWO])
    node = await coordinator_in(cluster)
    runtimes, partition = node.broker.groups.runtimes, node.partition(topic=CONSUMER_OFFSETS)
    await cluster.until(lambda: len(cluster.image(topic=CONSUMER_OFFSETS).isr) == 2)
    cluster.cut(ONE, TWO)
    node.in_process(lambda: append_something(partition))
    node.in_process(lambda: runtimes.on_role(partition))
    asked = asyncio.ensure_future(admin_commit_error(node))
    await cluster.pass_time(100)
    assert not asked.done()
    cluster.heal()
    assert await asked == 0
    assert list(node.broker.groups.committed()[0].group_ids()) == ["riders"]


async def list_error(node: Node) -> int:
    reply = await node.ask(Api.LIST_GROUPS, 4, states_filter=[])
    return int(reply.error_code)


@plays(brokers=2, **FEW)
async def test_groups_are_listed_only_when_all_that_should_be_here_are(cluster: Cluster) -> None:
    """
    1. A broker dies, and another leads what it led.   2. Who asks that one before it has opened the groups must not
       hear that there are none.
    """
    node = await coordinator_in(cluster)
    assert await list_error(node) == 0
    runtimes = node.broker.groups.runtimes
    runtime = runtimes._runtimes.pop(0)
    assert await list_error(node) == CoordinatorLoadInProgress.code
    runtimes._runtimes[0] = runtime
    cluster.cut(ONE, TWO)
    node.store.conditions.is_disconnected = True
    await cluster.until(lambda: not node.broker.may_act())
    assert await list_error(node) == CoordinatorNotAvailable.code


async def init_error(node: Node) -> int:
    reply = await node.ask(
        Api.INIT_PRODUCER_ID, 2, transactional_id=TRANSACTIONAL_ID, transaction_timeout=60_000
    )
    return int(reply.error_code)


async def commit_error(node: Node) -> int:
    partition = {
        "partition_index": 0,
        "committed_offset": 7,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    reply = await node.ask(
        Api.OFFSET_COMMIT,
        8,
        group_id="riders",
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[{"name": TOPIC, "partitions": [partition]}],
    )
    return int(reply.topics[0].partitions[0].error_code)


async def refuses_while_alone(
    cluster: Cluster, topic: str, number: int, ask: Callable[[Node], Awaitable[int]]
) -> Node:
    """Check that its coordinator refuses while it is the only one in sync, and not before or after; return that."""
    await cluster.until(lambda: len(cluster.image(number, topic).isr) == 2)
    leader = cluster.image(number, topic).leader
    assert leader is not None
    node, other = cluster[leader], cluster[TWO if leader == ONE else ONE]
    while await ask(node) != 0:
        # It is being loaded.
        await cluster.pass_time(10)
    other.kill()
    await cluster.until(lambda: len(cluster.image(number, topic).isr) == 1)
    log = node.partition(number, topic).log
    log_end = log.log_end
    assert [await ask(node) for _ in range(3)] == [CoordinatorNotAvailable.code] * 3
    assert log.log_end == log_end
    await other.start()
    await cluster.until(lambda: len(cluster.image(number, topic).isr) == 2)
    assert await ask(node) == 0
    assert log.log_end > log_end
    return node


@plays(brokers=2)
async def test_a_transactional_producer_is_sent_away_while_too_few_replicas_are_in_sync(
    cluster: Cluster,
) -> None:
    """It would wait until it times out and ask again, and each try would be written and kept, for hours perhaps."""
    node = cluster[ONE]
    runtimes = node.broker.transactions.runtimes
    await node.run(runtimes.ensure_topic())
    await refuses_while_alone(
        cluster, TRANSACTION_STATE, runtimes.partition_of(TRANSACTIONAL_ID), init_error
    )


@plays(brokers=2, **FEW, topic={"min.insync.replicas": "2"})
async def test_a_groups_commit_is_refused_while_too_few_replicas_are_in_sync(
    cluster: Cluster,
) -> None:
    await cluster.create([1, 2])
    await coordinator_in(cluster)
    node = await refuses_while_alone(cluster, CONSUMER_OFFSETS, 0, commit_error)
    # How far it has read is told all the while.
    cluster[TWO if node.id == ONE else ONE].kill()
    await cluster.until(lambda: len(cluster.image(topic=CONSUMER_OFFSETS).isr) == 1)
    assert await how_far(node) == 0


# Values from Java's String.hashCode.
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("pricing", -315056186),
        ("Aa", 2112),
        ("BB", 2112),
        ("polygenelubricants", -(2**31)),
        ("é", 233),
        ("😀", 1772899),
    ],
)
def test_the_hash_is_javas(text: str, value: int) -> None:
    assert java_string_hash(text) == value


def test_the_smallest_hash_goes_to_partition_zero_since_java_has_no_absolute_value_for_it() -> None:
    assert partition_for("polygenelubricants", 50) == 0


def test_a_group_always_has_the_same_partition_within_the_count() -> None:
    for group in ("pricing", "fraud", "warehouse", "ü", "\U0001f600", "a" * 1000):
        assert 0 <= partition_for(group, 50) < 50
        assert partition_for(group, 50) == partition_for(group, 50)
