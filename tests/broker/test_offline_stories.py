"""Stories of a log that fails where nobody else has everything: who is told so, who may lead, and how it comes back."""

from typing import Any

from broker.cluster_world import LAG_MS, ONE, THREE, TOPIC, TWO, Cluster, plays
from respool.cluster.partition_requests import ElectionKind
from respool.model.ids import BrokerId
from respool.wire.api_table import Api

NOBODY = -1


async def leader_by(cluster: Cluster, broker: BrokerId) -> int:
    """Who leads, as this broker's Metadata says."""
    reply = await cluster[broker].ask(
        Api.METADATA,
        9,
        topics=[{"name": TOPIC}],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    leader: int = reply.topics[0].partitions[0].leader_id
    return leader


async def elect_unclean(cluster: Cluster, at: BrokerId) -> int:
    reply = await cluster[at].ask(
        Api.ELECT_LEADERS,
        2,
        election_type=ElectionKind.UNCLEAN.value,
        topic_partitions=[{"topic": TOPIC, "partitions": [0]}],
        timeout=10_000,
    )
    code: int = reply.replica_election_results[0].partition_result[0].error_code
    return code


async def fall_behind(cluster: Cluster, **overrides: Any) -> None:
    """The other two do not have what the first one has committed, and cannot reach it for now."""
    await cluster.create([1, 2, 3], **overrides)
    await cluster.until_in_sync(1, 2, 3)
    cluster.cut(ONE, TWO)
    cluster.cut(ONE, THREE)
    assert (await cluster.produce(b"a", at=ONE)).error_code == 0
    assert cluster.image().isr == (ONE,)


async def fail(cluster: Cluster) -> None:
    """The first one's log fails; then nothing else is wrong."""
    cluster[ONE].take_offline()
    await cluster.until(lambda: cluster.image().leader is None)
    cluster.heal()


@plays(brokers=3)
async def test_a_log_that_fails_on_the_only_replica_in_sync_is_called_offline_by_all(
    cluster: Cluster,
) -> None:
    await fall_behind(cluster)
    await fail(cluster)
    await cluster.pass_time(10 * LAG_MS)
    assert [await leader_by(cluster, one) for one in (ONE, TWO, THREE)] == [NOBODY] * 3
    # Nobody has more: it is waited for, and nothing is lost.
    assert (cluster.image().isr, cluster.image().offline) == ((ONE,), (ONE,))


@plays(brokers=3)
async def test_it_leads_again_with_all_it_had_when_its_broker_is_restarted_on_a_sound_disk(
    cluster: Cluster,
) -> None:
    await fall_behind(cluster)
    await fail(cluster)
    cluster[ONE].kill()
    await cluster[ONE].start()
    await cluster.until_led(ONE)
    assert cluster.image().offline == ()
    await cluster.until_in_sync(1, 2, 3)
    assert cluster[TWO].log().log_end == 1
    assert await leader_by(cluster, TWO) == ONE


@plays(brokers=3)
async def test_an_operator_who_cannot_wait_has_another_elected_while_the_broken_one_runs(
    cluster: Cluster,
) -> None:
    await fall_behind(cluster)
    await fail(cluster)
    assert await elect_unclean(cluster, at=THREE) == 0
    await cluster.until_led(TWO)
    await cluster.until_in_sync(2, 3)
    assert (await cluster.produce(b"b", at=TWO)).base_offset == 0
    # What only the first one had is lost, also when it is back.
    cluster[ONE].kill()
    await cluster[ONE].start()
    await cluster.until_in_sync(1, 2, 3)
    assert cluster[ONE].values() == cluster[TWO].values()


@plays(brokers=3)
async def test_a_topic_that_allows_it_is_led_by_another_without_asking(cluster: Cluster) -> None:
    await fall_behind(cluster, unclean_leader_election_enable="true")
    cluster[ONE].take_offline()
    await cluster.until_led(TWO)


@plays(brokers=3)
async def test_a_log_that_is_still_damaged_after_a_restart_is_not_led_again(
    cluster: Cluster,
) -> None:
    """It was chosen again and again, because its broker ran, and kept others from being elected."""
    await fall_behind(cluster)
    await cluster[ONE].stop()
    cluster.heal()
    lost = f"{TOPIC}-0/00000000000000000000.log"
    disk = cluster[ONE].disk = cluster[ONE].disk.reopen()
    whole = disk.read_file(lost)
    assert whole is not None
    disk.delete(lost)
    for _ in range(2):
        await cluster[ONE].start()
        await cluster.until(lambda: cluster[TWO].broker.image.topics[TOPIC].partitions[0].offline)
        await cluster.pass_time(5 * LAG_MS)
        assert cluster.image().leader is None
        assert await leader_by(cluster, TWO) == NOBODY
        await cluster[ONE].stop()
    # The operator has found the file.
    disk = cluster[ONE].disk = cluster[ONE].disk.reopen()
    disk.replace_file(lost, whole)
    await cluster[ONE].start()
    await cluster.until_led(ONE)
    await cluster.until_in_sync(1, 2, 3)
    assert cluster[TWO].log().log_end == 1


@plays(brokers=2)
async def test_a_follower_whose_log_has_failed_is_in_sync_again_after_its_restart(
    cluster: Cluster,
) -> None:
    await cluster.create([1, 2])
    await cluster.until_in_sync(1, 2)
    cluster[TWO].take_offline()
    await cluster.until(lambda: cluster.image().offline == (TWO,))
    assert (await cluster.produce(b"a", at=ONE)).error_code == 0
    cluster[TWO].kill()
    await cluster[TWO].start()
    await cluster.until_in_sync(1, 2)
    assert cluster.image().offline == ()
