"""Stories of a cluster: what becomes of records and of those who wait for them when brokers come, go and fail."""

from broker.cluster_world import LAG_MS, ONE, TWO, Cluster, plays


@plays(brokers=2)
async def test_what_is_acknowledged_is_at_every_replica_in_sync(cluster: Cluster) -> None:
    await cluster.create([1, 2])
    await cluster.until_in_sync(1, 2)
    produced = await cluster.produce(b"a", at=ONE)
    assert (produced.error_code, produced.base_offset) == (0, 0)
    assert cluster[TWO].log().log_end == 1
    await cluster.until(lambda: cluster[TWO].partition().high_watermark == 1)


@plays(brokers=2)
async def test_an_offline_leader_commits_nothing_and_lives_on(cluster: Cluster) -> None:
    """Nobody is left to lead it: the ISR is the broken one. The broker serves its other partitions."""
    await cluster.create([1, 2], [1, 2])
    await cluster.until_in_sync(1, 2)
    await cluster.until_in_sync(1, 2, number=1)
    cluster[TWO].kill()
    await cluster.produce(b"a", at=ONE, acks=1)
    await cluster.until(lambda: cluster[ONE].log().synced_end == 1)
    cluster[ONE].take_offline()
    await cluster.pass_time(10 * LAG_MS)
    assert cluster[ONE].partition().high_watermark == 0
    assert (await cluster.produce(b"a", at=ONE, number=1)).error_code == 0


@plays(brokers=2)
async def test_an_offline_leader_takes_nobody_out_of_the_isr(cluster: Cluster) -> None:
    """Its followers hear errors only, so they seem to lag. One of them is the heir."""
    await cluster.create([1, 2], respool_flush="os")
    await cluster.until_in_sync(1, 2)
    cluster.cut(ONE, TWO)
    cluster[ONE].store.manners.is_cut = True
    await cluster.produce(b"a", at=ONE, acks=1)
    cluster[ONE].take_offline()
    await cluster.pass_time(3 * LAG_MS)
    cluster[ONE].store.manners.is_cut = False
    await cluster.until_led(TWO)
    assert TWO in cluster.image().isr


@plays(brokers=2)
async def test_a_partition_that_is_offline_at_its_leader_is_led_by_another(
    cluster: Cluster,
) -> None:
    await cluster.create([1, 2])
    await cluster.until_in_sync(1, 2)
    assert (await cluster.produce(b"a", at=ONE)).error_code == 0
    cluster[ONE].take_offline()
    await cluster.until_led(TWO)
    assert cluster.image().isr == (TWO,)
    assert (await cluster.produce(b"b", at=TWO)).base_offset == 1
