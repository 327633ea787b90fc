"""A topic is deleted and made anew under its name, while a broker has no time to let go of what it had.

Logs are opened and deleted one after the other, so what a broker leads of the old topic may be there for seconds after
it has heard of the new one.
"""

from collections.abc import Sequence

from broker.cluster_world import ONE, TOPIC, TWO, Cluster, batches, plays
from respool.model.errors import NotLeader
from respool.model.ids import BrokerId


async def make_anew_while_busy(cluster: Cluster, *replicas: int, busy: BrokerId) -> None:
    """The topic has another id then, also in the eyes of the broker that is busy with opening something else."""
    cluster[busy].offload.hold()
    await create(cluster, "another", [busy])
    await cluster.until(lambda: "another" in cluster[busy].broker.image.topics)
    await cluster.pass_time(50)
    await cluster[ONE].run(cluster[ONE].broker.topics.delete(TOPIC))
    await create(cluster, TOPIC, replicas)
    made = cluster[ONE].broker.image.topics[TOPIC].id
    await cluster.until(lambda: cluster[busy].broker.image.topics[TOPIC].id == made)
    (held,) = cluster[busy].broker.partitions.of_topic(TOPIC)
    assert held.topic_id != made


async def create(cluster: Cluster, name: str, replicas: Sequence[int]) -> None:
    await cluster[ONE].run(
        cluster[ONE].broker.topics.create(
            name,
            partition_count=-1,
            replication_factor=-1,
            assignment={0: replicas},
            overrides={"respool.flush": "os"},
        )
    )


async def until_it_has_time(cluster: Cluster, busy: BrokerId) -> None:
    cluster[busy].offload.release()
    await cluster.until_led(busy)


@plays(brokers=2)
async def test_nothing_is_acknowledged_into_the_log_that_is_about_to_go(cluster: Cluster) -> None:
    await cluster.create([2], respool_flush="os")
    await make_anew_while_busy(cluster, 2, busy=TWO)
    for acks in (1, -1):
        refused = await cluster.produce(b"lost", at=TWO, acks=acks, timeout_ms=500)
        assert refused.error_code == NotLeader.code
    read = await cluster.fetch(0, at=TWO)
    assert read.error_code == NotLeader.code
    assert (await cluster.offset(-1, at=TWO)).error_code == NotLeader.code
    await until_it_has_time(cluster, TWO)
    assert (await cluster.produce(b"kept", at=TWO)).base_offset == 0
    assert cluster[TWO].log().log_end == 1


@plays(brokers=2)
async def test_a_follower_of_the_new_topic_copies_nothing_of_the_old_one(cluster: Cluster) -> None:
    """
    1. Both topics have leader 2 and epoch 0.   2. The follower asks for the new one, and was sent what the old one had.
    3. The leader opens the new log, and gets as many new records: by their epochs the two logs agree, for ever.
    """
    await cluster.create([2, 1], respool_flush="os")
    await cluster.until_in_sync(1, 2)
    for value in (b"old-0", b"old-1", b"old-2"):
        await cluster.produce(value, at=TWO)
    await make_anew_while_busy(cluster, 2, 1, busy=TWO)
    await cluster.until(lambda: cluster[ONE].log().log_end == 0)
    await cluster.pass_time(2_000)
    assert cluster[ONE].log().log_end == 0
    cluster.cut(ONE, TWO)
    await until_it_has_time(cluster, TWO)
    for value in (b"new-0", b"new-1", b"new-2"):
        await cluster.produce(value, at=TWO, acks=1)
    cluster.heal()
    assert (await cluster.produce(b"new-3", at=TWO)).base_offset == 3
    ours, theirs = (
        [(one.base_offset, one.crc) for one in batches(cluster[number].log())]
        for number in (ONE, TWO)
    )
    assert ours == theirs


@plays(brokers=2)
async def test_who_waits_for_a_commit_in_the_old_topic_is_sent_away(cluster: Cluster) -> None:
    await cluster.create([2, 1], respool_flush="os")
    await cluster.until_in_sync(1, 2)
    cluster.cut(ONE, TWO)
    waiting = cluster.loop.create_task(cluster.produce(b"a", at=TWO, timeout_ms=20_000))
    await cluster.until(lambda: cluster[TWO].log().log_end == 1)
    begun_s = cluster.loop.time()
    await make_anew_while_busy(cluster, 2, 1, busy=TWO)
    assert (await waiting).error_code == NotLeader.code
    assert cluster.loop.time() - begun_s < 10
    await until_it_has_time(cluster, TWO)


@plays(brokers=2)
async def test_settings_hold_at_once_however_busy_a_broker_is(cluster: Cluster) -> None:
    """A mirror that was promoted took the mirror's batches for as long as another log was being opened."""
    await cluster.create([2], respool_flush="os", respool_mirror="true")
    cluster[TWO].offload.hold()
    await create(cluster, "another", [TWO])
    await cluster.until(lambda: "another" in cluster[TWO].broker.image.topics)
    await cluster.pass_time(50)
    await cluster[ONE].run(
        cluster[ONE].broker.topics.change_overrides(
            TOPIC, lambda topic: {**topic.overrides, "respool.mirror": "false"}
        )
    )
    await cluster.until(lambda: not cluster[TWO].broker.image.topics[TOPIC].config.respool_mirror)
    assert not cluster[TWO].partition().config.respool_mirror
    cluster[TWO].offload.release()
