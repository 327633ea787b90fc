"""Stories of a cluster: what becomes of records and of those who wait for them when brokers come, go and fail."""

import asyncio
import logging
from random import Random
from typing import Any

from broker.cluster_world import (
    EARLIEST,
    LAG_MS,
    LATEST,
    ONE,
    THREE,
    TOPIC,
    TWO,
    Cluster,
    plays,
)
from respool.broker.partitions.partition import Partition
from respool.model.coordinator_errors import CoordinatorNotAvailable, NotCoordinator
from respool.model.errors import DiskFull, NotEnoughReplicas, NotLeader, RequestTimedOut
from respool.model.ids import BrokerId
from respool.records.build import NewRecord, build_batch
from respool.records.validate import check_produced
from respool.sim.disk.simulated_disk import SimDisk
from respool.sim.runtime.simulated_sources import SimRandomSource
from respool.wire.api_table import Api


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
    cluster[ONE].store.conditions.is_disconnected = True
    await cluster.produce(b"a", at=ONE, acks=1)
    cluster[ONE].take_offline()
    await cluster.pass_time(3 * LAG_MS)
    cluster[ONE].store.conditions.is_disconnected = False
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


@plays(brokers=2)
async def test_a_follower_that_could_not_cut_its_log_on_a_full_disk_opens_it_again(
    cluster: Cluster,
) -> None:
    """Found by simulation, seed 200193: it was offline until the broker was restarted."""
    await cluster.create([1, 2])
    await cluster.until_in_sync(1, 2)
    assert (await cluster.produce(b"a", at=ONE)).error_code == 0
    half_cut = cluster[TWO].partition()
    cluster[TWO].in_process(lambda: half_cut.abandon_log(DiskFull("as the test wants")))
    assert (await cluster.produce(b"b", at=ONE, acks=1)).error_code == 0
    await cluster.until(lambda: cluster[TWO].partition() is not half_cut)
    await cluster.until_in_sync(1, 2)
    assert (await cluster.produce(b"c", at=ONE)).error_code == 0
    assert cluster[TWO].log().log_end == 3


# -- a leader dies ---------------------------------------------------------------------------------------------------


@plays(brokers=3)
async def test_the_leader_dies_and_a_follower_leads_with_all_that_was_committed(
    cluster: Cluster,
) -> None:
    await cluster.create([1, 2, 3], min_insync_replicas=2)
    await cluster.until_in_sync(1, 2, 3)
    for number in range(5):
        assert (await cluster.produce(b"%d" % number, at=ONE)).base_offset == number
    cluster[ONE].kill()
    await cluster.until(lambda: cluster[TWO].leads() or cluster[THREE].leads())
    heir = cluster.leader()
    await cluster.until(lambda: heir.partition().high_watermark == 5)
    assert (await cluster.produce(b"more", at=heir.id)).base_offset == 5
    epochs = [epoch for _, epoch in heir.values()]
    assert epochs[:5] == [epochs[0]] * 5
    assert epochs[5] > epochs[0]


@plays(brokers=2)
async def test_what_was_never_committed_is_cut_off_when_its_broker_is_back(
    cluster: Cluster,
) -> None:
    await cluster.create([1, 2])
    await cluster.until_in_sync(1, 2)
    await cluster.produce(b"kept", at=ONE)
    cluster.cut(ONE, TWO)
    await cluster.produce(b"lost 1", at=ONE, acks=1)
    await cluster.produce(b"lost 2", at=ONE, acks=1)
    assert cluster[ONE].log().log_end == 3
    cluster[ONE].kill()
    cluster.heal()
    await cluster.until_led(TWO)
    await cluster.produce(b"new", at=TWO)
    await cluster[ONE].start()
    await cluster.until_in_sync(1, 2)
    await cluster.until(lambda: cluster[ONE].log().log_end == cluster[TWO].log().log_end)
    assert cluster[ONE].values() == cluster[TWO].values()
    assert cluster[ONE].log().log_end == 2


@plays(brokers=2)
async def test_a_producer_that_waits_hears_at_once_that_another_broker_leads(
    cluster: Cluster,
) -> None:
    """TRAPS rule 23. The leader lives, but nobody can reach it from the store's side."""
    await cluster.create([1, 2], [2, 1])
    await cluster.until_in_sync(1, 2)
    cluster.cut(ONE, TWO)
    waiting = asyncio.ensure_future(cluster.produce(b"a", at=ONE, timeout_ms=120_000))
    await cluster.pass_time(100)
    assert not waiting.done()
    cluster[ONE].store.conditions.is_disconnected = True
    await cluster.until(waiting.done)
    assert waiting.result().error_code == NotLeader.code
    await cluster.until_led(TWO)
    assert cluster.loop.time() < 60


@plays(brokers=2)
async def test_acks_1_waits_for_the_leader_s_disk_and_for_no_follower(cluster: Cluster) -> None:
    await cluster.create([1, 2])
    await cluster.until_in_sync(1, 2)
    cluster.cut(ONE, TWO)
    cluster[ONE].offload.hold()
    waiting = asyncio.ensure_future(cluster.produce(b"a", at=ONE, acks=1))
    await cluster.until(lambda: cluster[ONE].log().log_end == 1)
    await cluster.pass_time(100)
    assert not waiting.done()
    cluster[ONE].offload.release()
    assert (await waiting).error_code == 0
    assert (cluster[ONE].log().synced_end, cluster[ONE].partition().high_watermark) == (1, 0)


@plays(brokers=2)
async def test_a_producer_with_acks_1_that_waits_for_the_disk_hears_that_another_broker_leads(
    cluster: Cluster,
) -> None:
    """TRAPS rule 23."""
    await cluster.create([1, 2], [2, 1])
    await cluster.until_in_sync(1, 2)
    cluster.cut(ONE, TWO)
    cluster[ONE].offload.hold()
    waiting = asyncio.ensure_future(cluster.produce(b"a", at=ONE, acks=1, timeout_ms=120_000))
    await cluster.until(lambda: cluster[ONE].log().log_end == 1)
    cluster[ONE].store.conditions.is_disconnected = True
    await cluster.until(waiting.done)
    assert waiting.result().error_code == NotLeader.code
    cluster[ONE].offload.release()
    await cluster.until_led(TWO)


@plays(brokers=2)
async def test_a_fenced_broker_serves_nobody(cluster: Cluster) -> None:
    """TRAPS rule 25: it may be that another leads by now. Its log is as it was."""
    await cluster.create([1, 2])
    await cluster.until_in_sync(1, 2)
    await cluster.produce(b"a", at=ONE)
    asked = {"key_type": 0, "coordinator_keys": ["g"]}
    await cluster[ONE].ask(Api.FIND_COORDINATOR, 4, **asked)
    await cluster.until(lambda: "__consumer_offsets" in cluster[ONE].broker.image.topics)
    cluster[ONE].store.conditions.is_disconnected = True
    await cluster.until_led(TWO)
    assert cluster[ONE].partition().is_leading
    # Who were sent to another that cannot act either would be back at once.
    (found,) = (await cluster[ONE].ask(Api.FIND_COORDINATOR, 4, **asked)).coordinators
    assert found.error_code == CoordinatorNotAvailable.code
    assert (await cluster.produce(b"b", at=ONE, acks=1)).error_code == NotLeader.code
    assert (await cluster.fetch(0, at=ONE)).error_code == NotLeader.code
    assert (await cluster.offset(LATEST, at=ONE)).error_code == NotLeader.code
    assert (await cluster.delete_records(1, at=ONE)).error_code == NotLeader.code
    assert cluster[ONE].log().log_end == 1
    cluster[ONE].store.conditions.is_disconnected = False
    await cluster.until_in_sync(1, 2)
    assert not cluster[ONE].leads()


@plays(brokers=1, session_ttl_ms=300_000, group_consumer_session_timeout_ms=1_000)
async def test_members_of_groups_survive_that_their_coordinator_could_not_act(
    cluster: Cluster,
) -> None:
    """etcd was away. Nobody's heartbeat was taken, and they were thrown out for that when it was back."""
    broker = cluster[ONE].broker

    async def beat(epoch: int) -> Any:
        return await cluster[ONE].ask(
            Api.CONSUMER_GROUP_HEARTBEAT,
            0,
            group_id="g",
            member_id="m",
            member_epoch=epoch,
            rebalance_timeout=30_000,
            subscribed_topic_names=[TOPIC] if epoch == 0 else None,
            topic_partitions=[] if epoch == 0 else None,
        )

    await cluster.create([1])
    await cluster[ONE].ask(Api.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g"])
    joined = await beat(0)
    while joined.error_code:
        await cluster.pass_time(50)
        joined = await beat(0)
    cluster[ONE].store.conditions.is_disconnected = True
    while broker.may_act():
        assert (await beat(joined.member_epoch)).error_code == 0
        await cluster.pass_time(400)
    refused = await beat(joined.member_epoch)
    assert refused.error_code == NotCoordinator.code
    await cluster.pass_time(1_500)
    cluster[ONE].store.conditions.is_disconnected = False
    await cluster.until(broker.may_act)
    await cluster.pass_time(1_500)
    assert (await beat(joined.member_epoch)).error_code == 0


@plays(brokers=2)
async def test_a_broker_that_stops_hands_over_what_it_leads_and_comes_back_into_the_isr(
    cluster: Cluster,
) -> None:
    await cluster.create([1, 2])
    await cluster.until_in_sync(1, 2)
    await cluster.produce(b"a", at=ONE)
    began = cluster.loop.time()
    await cluster[ONE].stop()
    assert cluster[TWO].leads()
    # Nobody waited for a lease to run out.
    assert cluster.loop.time() - began < 2
    assert (await cluster.produce(b"b", at=TWO)).base_offset == 1
    await cluster[ONE].start()
    await cluster.until_in_sync(1, 2)
    assert cluster[ONE].values() == cluster[TWO].values()


# -- the ISR ---------------------------------------------------------------------------------------------------------


@plays(brokers=2)
async def test_the_isr_shrinks_without_a_follower_and_grows_when_it_is_back(
    cluster: Cluster,
) -> None:
    await cluster.create([1, 2])
    await cluster.until_in_sync(1, 2)
    epoch = cluster.image().leader_epoch
    cluster.cut(ONE, TWO)
    waiting = asyncio.ensure_future(cluster.produce(b"a", at=ONE))
    await cluster.pass_time(LAG_MS // 2)
    assert not waiting.done()
    await cluster.until_in_sync(1)
    assert (await waiting).error_code == 0
    cluster.heal()
    await cluster.until_in_sync(1, 2)
    assert cluster[TWO].log().log_end == 1
    # TRAPS rule 14.
    assert cluster.image().leader_epoch == epoch


@plays(brokers=2)
async def test_below_the_smallest_isr_acks_all_is_refused_and_nothing_is_written(
    cluster: Cluster,
) -> None:
    """TRAPS rule 18."""
    await cluster.create([1, 2], min_insync_replicas=2)
    await cluster.until_in_sync(1, 2)
    cluster.cut(ONE, TWO)
    await cluster.produce(b"a", at=ONE, acks=1)
    await cluster.until_in_sync(1)
    assert (await cluster.produce(b"b", at=ONE)).error_code == NotEnoughReplicas.code
    assert cluster[ONE].log().log_end == 1
    # TRAPS rule 2.
    assert cluster[ONE].partition().high_watermark == 0
    cluster.heal()
    await cluster.until_in_sync(1, 2)
    assert (await cluster.produce(b"b", at=ONE)).base_offset == 1


@plays(brokers=2)
async def test_a_producer_is_told_in_time_that_its_batch_is_not_committed_yet(
    cluster: Cluster,
) -> None:
    await cluster.create([1, 2])
    await cluster.until_in_sync(1, 2)
    cluster.cut(ONE, TWO)
    late = await cluster.produce(b"a", at=ONE, timeout_ms=LAG_MS // 2)
    assert late.error_code == RequestTimedOut.code
    assert cluster[ONE].log().log_end == 1


@plays(brokers=2)
async def test_a_follower_whose_partition_is_offline_leaves_the_isr_by_itself(
    cluster: Cluster,
) -> None:
    await cluster.create([1, 2])
    await cluster.until_in_sync(1, 2)
    cluster[TWO].take_offline()
    await cluster.pass_time(LAG_MS // 4)
    assert cluster.image().isr == (ONE,)
    assert (await cluster.produce(b"a", at=ONE)).error_code == 0


@plays(brokers=3)
async def test_a_reassignment_copies_to_the_new_replica_which_joins_and_the_old_one_goes(
    cluster: Cluster,
) -> None:
    await cluster.create([1, 2])
    await cluster.until_in_sync(1, 2)
    for number in range(3):
        await cluster.produce(b"%d" % number, at=ONE)
    reply = await cluster[ONE].ask(
        Api.ALTER_PARTITION_REASSIGNMENTS,
        0,
        timeout=10_000,
        topics=[{"name": TOPIC, "partitions": [{"partition_index": 0, "replicas": [3, 2]}]}],
    )
    assert reply.error_code == 0
    await cluster.until(lambda: set(cluster.image().replicas) == {2, 3})
    await cluster.until_in_sync(2, 3)
    assert len(cluster[THREE].values()) == 3
    await cluster.until(lambda: not cluster[ONE].broker.partitions.of_topic(TOPIC))
    leader = cluster.leader()
    assert (await cluster.produce(b"more", at=leader.id)).base_offset == 3


@plays(brokers=2)
async def test_producers_notice_nothing_of_a_leader_s_next_epoch(cluster: Cluster) -> None:
    """A replica leaves, and the same broker leads on. Who waited was told that nothing was written, and who came then
    was sent away: librdkafka, with the next request under way already, began a new epoch and wrote the first again."""
    await cluster.create([1, 2])
    await cluster.until_in_sync(1, 2)
    cluster[ONE].offload.hold()
    waiting = asyncio.ensure_future(cluster.produce(b"a", at=ONE))
    await cluster.until(lambda: cluster[ONE].log().log_end == 1)
    await cluster[ONE].ask(
        Api.ALTER_PARTITION_REASSIGNMENTS,
        0,
        timeout=10_000,
        topics=[{"name": TOPIC, "partitions": [{"partition_index": 0, "replicas": [1]}]}],
    )
    await cluster.until(lambda: cluster.image().leader_epoch == 1)
    assert not cluster[ONE].partition().is_leading
    coming = asyncio.ensure_future(cluster.produce(b"b", at=ONE))
    late = await cluster.produce(b"c", at=ONE, timeout_ms=100)
    assert late.error_code == NotLeader.code
    assert not waiting.done()
    assert not coming.done()
    cluster[ONE].offload.release()
    for offset, asked in enumerate((waiting, coming)):
        produced = await asked
        assert (produced.error_code, produced.base_offset) == (0, offset)
    assert cluster[ONE].log().latest_epoch == 1


# -- what followers know ---------------------------------------------------------------------------------------------


@plays(brokers=2)
async def test_a_batch_that_is_looked_into_while_the_next_epoch_comes_is_written_in_that(
    cluster: Cluster,
) -> None:
    """It was refused, and the next request of its connection came to be out of order."""
    await cluster.create([1, 2], compression_type="gzip")
    await cluster.until_in_sync(1, 2)
    # An empty log enters its next epoch without the disk.
    await cluster.produce(b"first", at=ONE)
    cluster[ONE].offload.hold()
    writing = asyncio.ensure_future(cluster.produce(b"a", at=ONE))
    await cluster.pass_time(20)
    moved = {"name": TOPIC, "partitions": [{"partition_index": 0, "replicas": [1]}]}
    await cluster[ONE].ask(Api.ALTER_PARTITION_REASSIGNMENTS, 0, timeout=10_000, topics=[moved])
    await cluster.until(lambda: cluster.image().leader_epoch == 1)
    assert cluster[ONE].partition().role.epoch_transition is not None
    cluster[ONE].offload.release()
    written = await writing
    assert (written.error_code, written.base_offset) == (0, 1)
    assert cluster[ONE].values() == [(0, 0), (1, 1)]


@plays(brokers=2)
async def test_followers_know_what_is_committed_and_what_is_stable(cluster: Cluster) -> None:
    await cluster.create([1, 2])
    await cluster.until_in_sync(1, 2)
    await cluster.produce(b"a", at=ONE)
    log = cluster[ONE].log()
    partition = cluster[ONE].partition()
    cluster[ONE].in_process(lambda: append_in_transaction(partition))
    await cluster.until(lambda: cluster[TWO].partition().high_watermark == 2)
    assert log.log_end == 2
    assert cluster[ONE].partition().last_stable_offset == 1
    assert cluster[TWO].partition().last_stable_offset == 1
    assert not (await cluster.fetch(1, at=TWO, isolation_level=1)).records
    assert (await cluster.fetch(1, at=TWO)).records


@plays(brokers=2)
async def test_followers_tell_which_producers_they_know_but_not_while_their_log_is_cut(
    cluster: Cluster,
) -> None:
    """As `kafka-transactions.sh find-hanging --broker-id` asks them."""

    async def told_by(number: BrokerId) -> tuple[int, list[int]]:
        topics = [{"name": TOPIC, "partition_indexes": [0]}]
        answer = await cluster[number].ask(Api.DESCRIBE_PRODUCERS, 0, topics=topics)
        (partition,) = answer.topics[0].partitions
        known = [one.current_txn_start_offset for one in partition.active_producers]
        return int(partition.error_code), known

    await cluster.create([1, 2])
    await cluster.until_in_sync(1, 2)
    partition = cluster[ONE].partition()
    cluster[ONE].in_process(lambda: append_in_transaction(partition))
    await cluster.until(lambda: cluster[TWO].partition().high_watermark == 1)
    assert await told_by(ONE) == await told_by(TWO) == (0, [0])
    async with cluster[TWO].partition().changing:
        assert await told_by(TWO) == (NotLeader.code, [])


@plays(brokers=2)
async def test_a_follower_that_was_away_for_longer_than_records_are_kept_starts_anew(
    cluster: Cluster,
) -> None:
    await cluster.create([1, 2], segment_bytes=1024, retention_bytes=1024)
    await cluster.until_in_sync(1, 2)
    await cluster.produce(b"a", at=ONE)
    cluster[TWO].kill()
    await cluster.until_in_sync(1)
    for _ in range(8):
        await cluster.produce(b"x" * 600, at=ONE)
    leader = cluster[ONE]
    leader.in_process(lambda: leader.broker.housekeeping.clean(leader.partition()))
    start = leader.log().log_start
    assert start > 1
    await cluster[TWO].start()
    await cluster.until_in_sync(1, 2)
    assert cluster[TWO].log().log_start == start
    assert cluster[TWO].values() == leader.values()


# -- deleting --------------------------------------------------------------------------------------------------------


@plays(brokers=2)
async def test_records_are_deleted_when_every_replica_has_deleted_them(cluster: Cluster) -> None:
    await cluster.create([1, 2])
    await cluster.until_in_sync(1, 2)
    for _ in range(3):
        await cluster.produce(b"a", at=ONE)
    deleted = await cluster.delete_records(2, at=ONE)
    assert (deleted.error_code, deleted.low_watermark) == (0, 2)
    assert cluster[TWO].log().log_start == 2
    assert (await cluster.offset(EARLIEST, at=ONE)).offset == 2


@plays(brokers=2)
async def test_a_deletion_that_a_follower_has_not_heard_of_is_not_done(cluster: Cluster) -> None:
    """Else one that is elected would bring the records back. Asked again, it is."""
    await cluster.create([1, 2])
    await cluster.until_in_sync(1, 2)
    await cluster.produce(b"a", at=ONE)
    cluster.cut(ONE, TWO)
    for _ in range(3):
        late = await cluster.delete_records(1, at=ONE, timeout_ms=100)
        assert late.error_code == RequestTimedOut.code
    # Who has been told so does not stay behind.
    assert not cluster[ONE].partition().waiters._deletions._waiting
    cluster.heal()
    assert (await cluster.delete_records(1, at=ONE)).low_watermark == 1
    assert cluster[TWO].log().log_start == 1


@plays(brokers=2)
async def test_nobody_waits_for_the_deletions_of_a_replica_that_is_offline(
    cluster: Cluster,
) -> None:
    """Its broker runs on: only its disk has failed. Repaired, it deletes them before it is in sync again."""
    await cluster.create([1, 2])
    await cluster.until_in_sync(1, 2)
    for _ in range(2):
        await cluster.produce(b"a", at=ONE)
    cluster[TWO].take_offline()
    await cluster.until_in_sync(1)
    assert (await cluster.delete_records(1, at=ONE)).low_watermark == 1
    cluster[TWO].kill()
    await cluster[TWO].start()
    await cluster.until_in_sync(1, 2)
    assert cluster[TWO].log().log_start == 1


@plays(brokers=2)
async def test_who_waits_for_a_deletion_hears_that_the_leader_is_none_any_more(
    cluster: Cluster,
) -> None:
    await cluster.create([1, 2])
    await cluster.until_in_sync(1, 2)
    await cluster.produce(b"a", at=ONE)
    cluster.cut(ONE, TWO)
    waiting = asyncio.ensure_future(cluster.delete_records(1, at=ONE, timeout_ms=120_000))
    await cluster.pass_time(50)
    cluster[ONE].store.conditions.is_disconnected = True
    await cluster.until(waiting.done)
    assert waiting.result().error_code == NotLeader.code


@plays(brokers=2)
async def test_nobody_waits_for_the_deletions_of_a_broker_that_is_dead_and_left(
    cluster: Cluster,
) -> None:
    await cluster.create([1, 2])
    await cluster.until_in_sync(1, 2)
    await cluster.produce(b"a", at=ONE)
    cluster[TWO].kill()
    waiting = asyncio.ensure_future(cluster.delete_records(1, at=ONE))
    await cluster.until_in_sync(1)
    await cluster.until(waiting.done)
    assert waiting.result().low_watermark == 1
    await cluster[TWO].start()
    await cluster.until_in_sync(1, 2)
    assert cluster[TWO].log().log_start == 1


@plays(brokers=2)
async def test_a_topic_that_is_made_anew_has_nothing_of_the_old_one(cluster: Cluster) -> None:
    """TRAPS rule 42. While its followers fetch."""
    await cluster.create([1, 2])
    await cluster.until_in_sync(1, 2)
    await cluster.produce(b"old", at=ONE)
    await cluster[ONE].run(cluster[ONE].broker.topics.delete(TOPIC))
    await cluster.create([2, 1])
    await cluster.until(cluster[TWO].leads)
    await cluster.until_in_sync(1, 2)
    assert (await cluster.produce(b"new", at=TWO)).base_offset == 0
    await cluster.until(lambda: cluster[ONE].log().log_end == 1)
    assert cluster[ONE].partition().topic_id == cluster[TWO].partition().topic_id


def append_in_transaction(partition: Partition) -> None:
    """The first record of a transaction that stays open."""
    data = build_batch(
        [NewRecord(value=b"open", timestamp_ms=0)],
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    batch = check_produced(data, bytes_max=1 << 20)
    guard = partition.log.begin_verification(batch.header)
    partition.append(batch, now_ms=0, guard=guard)


@plays(brokers=2)
async def test_a_broker_that_comes_with_an_empty_disk_takes_nothing_from_the_others(
    cluster: Cluster,
) -> None:
    """
    1. All stop cleanly, broker 1 last.   2. Its disk is not mounted when it is started: it led with an empty log, and
       broker 2 dropped all that it had.   3. With its own disk it leads, and everything is there.
    """
    await cluster.create([1, 2])
    await cluster.until_in_sync(1, 2)
    await cluster.produce(b"a", at=ONE)
    await cluster[TWO].stop()
    await cluster.until_in_sync(1)
    await cluster[ONE].stop()
    mounted, cluster[ONE].disk = cluster[ONE].disk, SimDisk(Random(9))
    told: list[str] = []
    ears = logging.Handler(logging.WARNING)
    ears.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("respool.broker.membership.broker_lifecycle").addHandler(ears)
    folder = (mounted.reopen().read_file("folder-id") or b"").decode()
    cluster[ONE].rng = SimRandomSource(9)
    await cluster[ONE].start()
    assert f"with its data folder whose file folder-id says {folder};" in told[-1]
    assert told[-1].startswith("rides-0 stay")
    await cluster[TWO].start()
    await cluster.pass_time(60_000)
    assert (cluster.image().leader, cluster.image().last_leader) == (None, ONE)
    assert cluster[TWO].log().log_end == 1
    await cluster[ONE].stop()
    cluster[ONE].disk = mounted
    await cluster[ONE].start()
    # Nothing waits for the empty one.
    assert told[-1].endswith("it copies what others have")
    logging.getLogger("respool.broker.membership.broker_lifecycle").removeHandler(ears)
    await cluster.until_led(ONE)
    await cluster.until_in_sync(1, 2)
    assert cluster[ONE].log().log_end == 1
