"""Stories of delayed records in a cluster: whoever leads delivers them, once, whatever becomes of the others."""

from typing import Any

from broker.cluster_world import ONE, PRODUCE_VERSION, THREE, TOPIC, TWO, Cluster, plays
from broker.deliveries.read_log import read_log
from respool.model.ids import BrokerId
from respool.records.batch import RecordBatch
from respool.records.build import NewRecord, build_batch
from respool.records.mirrored_batches import MIRRORED, read_mirrored
from respool.records.record import Record, read_records
from respool.records.validate import walk_batches
from respool.wire.api_table import Api


async def send(cluster: Cluster, *records: NewRecord, at: BrokerId, **batch: Any) -> Any:
    data = {"index": 0, "records": build_batch(records, **batch)}
    reply = await cluster[at].ask(
        Api.PRODUCE,
        PRODUCE_VERSION,
        transactional_id=None,
        acks=-1,
        timeout=30_000,
        topic_data=[{"name": TOPIC, "partition_data": [data]}],
    )
    return reply.responses[0].partition_responses[0]


def delayed(value: bytes, delay: bytes, *headers: tuple[str, bytes]) -> NewRecord:
    return NewRecord(value=value, timestamp_ms=0, headers=(("respool-delay", delay), *headers))


def copies(cluster: Cluster, at: BrokerId) -> list[bytes | None]:
    """The values of all copies in a replica's log, committed or not."""
    return [one.value for one in stored(cluster, at) if is_copy(one)]


def stored(cluster: Cluster, at: BrokerId) -> list[Record]:
    return read_log(cluster[at].log())


def is_copy(one: Record) -> bool:
    return "respool-delivered-from" in dict(one.headers)


def pending(cluster: Cluster, at: BrokerId) -> int:
    broker = cluster[at].broker
    return broker.deliveries.pending_count(cluster[at].partition())


@plays(brokers=3)
async def test_the_next_leader_delivers_what_the_killed_one_had_not(cluster: Cluster) -> None:
    await cluster.create([1, 2, 3], respool_delay="true", min_insync_replicas=1)
    await cluster.until_in_sync(1, 2, 3)
    for number in range(10):
        answer = await send(cluster, delayed(b"%d" % number, b"%ds" % (5 * number + 5)), at=ONE)
        assert answer.error_code == 0
    await cluster.until(lambda: len(copies(cluster, TWO)) == 4)
    cluster[ONE].kill()
    await cluster.until_led(TWO)
    assert 0 < pending(cluster, TWO) <= 7
    await cluster.until(lambda: len(copies(cluster, TWO)) == 10)
    assert copies(cluster, TWO) == [b"%d" % number for number in range(10)]
    await cluster[ONE].start()
    await cluster.until_in_sync(1, 2, 3)
    await cluster.until(lambda: pending(cluster, ONE) == 0)
    assert copies(cluster, ONE) == copies(cluster, TWO)


@plays(brokers=3)
async def test_each_is_delivered_once_while_leaders_come_and_go(cluster: Cluster) -> None:
    await cluster.create([1, 2, 3], respool_delay="true", min_insync_replicas=2)
    await cluster.until_in_sync(1, 2, 3)
    for number in range(30):
        await send(cluster, delayed(b"%d" % number, b"%ds" % (number + 1)), at=ONE)
    for victim in (ONE, TWO, THREE, ONE):
        await cluster.until(
            lambda: any(node.leads() for node in cluster.nodes.values() if node.is_up)
        )
        await cluster.pass_time(3_000)
        cluster[victim].kill()
        await cluster.pass_time(6_000)
        await cluster[victim].start()
        await cluster.until_in_sync(1, 2, 3)
    await cluster.until(lambda: len(copies(cluster, ONE)) == 30)
    await cluster.pass_time(5_000)
    for broker in (ONE, TWO, THREE):
        assert sorted(map(bytes, filter(None, copies(cluster, broker)))) == sorted(
            b"%d" % number for number in range(30)
        )
        assert pending(cluster, broker) == 0


@plays(brokers=2)
async def test_leader_that_is_cut_off_delivers_nothing_that_counts(cluster: Cluster) -> None:
    """1. ONE leads and loses its way to TWO and the store.   2. TWO leads.   3. ONE comes back and follows."""
    await cluster.create([1, 2], respool_delay="true")
    await cluster.until_in_sync(1, 2)
    for number in range(5):
        await send(cluster, delayed(b"%d" % number, b"%ds" % (4 * number + 4)), at=ONE)
    await cluster.until(lambda: len(copies(cluster, TWO)) == 1)
    cluster.cut(ONE, TWO)
    cluster[ONE].store.conditions.is_disconnected = True
    await cluster.pass_time(15_000)
    cluster.heal()
    cluster[ONE].store.conditions.is_disconnected = False
    await cluster.until(lambda: any(len(copies(cluster, one)) == 5 for one in (ONE, TWO)))
    await cluster.until_in_sync(1, 2)
    await cluster.until(lambda: copies(cluster, ONE) == copies(cluster, TWO))
    assert copies(cluster, TWO) == [b"%d" % number for number in range(5)]


@plays(brokers=2)
async def test_follower_that_is_read_hides_delayed_records(cluster: Cluster) -> None:
    await cluster.create([1, 2], respool_delay="true")
    await cluster.until_in_sync(1, 2)
    await send(cluster, NewRecord(value=b"now", timestamp_ms=0), delayed(b"later", b"1h"), at=ONE)
    await cluster.until(lambda: cluster[TWO].partition().high_watermark == 2)
    for broker in (ONE, TWO):
        fetched = await cluster.fetch(0, at=broker)
        data = bytes(fetched.records)
        shown = [
            one.value
            for position, header in walk_batches(data)
            if not header.is_control
            for one in read_records(
                RecordBatch(header, data[position : position + header.size]), limit=10**6
            )
        ]
        assert shown == [b"now"]
        assert len(stored(cluster, broker)) == 2


@plays(brokers=1)
async def test_mirror_delivers_nothing_until_it_is_promoted(cluster: Cluster) -> None:
    await cluster.create([1], respool_delay="true", respool_mirror="true")
    now_ms = cluster.clock.now_ms()
    mirrored = build_batch(
        [delayed(b"a", b"5s"), delayed(b"b", b"1h")],
        leader_epoch=MIRRORED,
        log_append_time=True,
        max_timestamp=now_ms,
    )
    partition = cluster[ONE].partition()

    copied = read_mirrored(mirrored)
    assert copied is not None

    async def append() -> None:
        partition.append_mirrored(copied, now_ms=now_ms)

    await cluster[ONE].run(append())
    await cluster.pass_time(20_000)
    assert pending(cluster, ONE) == 2
    assert copies(cluster, ONE) == []
    broker = cluster[ONE].broker
    await cluster[ONE].run(
        broker.topics.change_overrides(
            TOPIC, lambda topic: {**topic.overrides, "respool.mirror": "false"}
        )
    )
    await cluster.until(lambda: copies(cluster, ONE) == [b"a"])
