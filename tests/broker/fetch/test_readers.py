"""Consumers and followers at the brokers of a cluster: who is served what, and who is sent elsewhere."""

import asyncio
from typing import Any

from broker.cluster_world import (
    LAG_MS,
    LATEST,
    LIST_OFFSETS_VERSION,
    ONE,
    TOPIC,
    TWO,
    Cluster,
    plays,
)
from respool.broker.fetch.readers import ConsumerReader, FollowerReader
from respool.broker.fetch.sessions import FetchTarget
from respool.broker.partitions.partition import Partition
from respool.log.partition_log import ReadSpec
from respool.model.errors import (
    FencedLeaderEpoch,
    NotLeader,
    OffsetNotAvailable,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
)
from respool.model.file_range import FileRange
from respool.model.ids import Offset
from respool.ports.disk import NotCached
from respool.wire.api_table import Api
from respool.wire.hot_replies import FetchedPartition

SESSION_VERSION = 12
# Who has one may be sent to a follower.
RACK = "b"


async def replicated(cluster: Cluster, *values: bytes) -> None:
    await cluster.create([1, 2])
    await cluster.until_in_sync(1, 2)
    for value in values:
        assert (await cluster.produce(value, at=ONE)).error_code == 0
    await cluster.until(lambda: cluster[TWO].partition().high_watermark == len(values))


async def follower_fetch(
    cluster: Cluster,
    *,
    at: Any = ONE,
    offset: int = 0,
    leader_epoch: int | None = None,
    broker_epoch: int | None = None,
    last_fetched_epoch: int = -1,
) -> Any:
    """As broker 2 would, or one that takes itself for it."""
    member = cluster[TWO].broker.member
    assert member is not None
    topic = cluster[ONE].broker.image.topics[TOPIC]
    epoch = topic.partitions[0].leader_epoch if leader_epoch is None else leader_epoch
    wanted = {
        "partition": 0,
        "current_leader_epoch": epoch,
        "fetch_offset": offset,
        "last_fetched_epoch": last_fetched_epoch,
        "log_start_offset": 0,
        "partition_max_bytes": 1 << 20,
    }
    reply = await cluster[at].ask(
        Api.FETCH,
        16,
        cluster_id=None,
        replica_state={
            "replica_id": TWO,
            "replica_epoch": member.epoch if broker_epoch is None else broker_epoch,
        },
        max_wait=0,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[{"topic_id": topic.id, "partitions": [wanted]}],
        forgotten_topics_data=[],
        rack_id="",
    )
    return reply.responses[0].partitions[0]


# -- followers -------------------------------------------------------------------------------------------------------


@plays(brokers=2)
async def test_a_follower_is_given_what_is_not_committed_and_a_consumer_is_not(
    cluster: Cluster,
) -> None:
    """TRAPS rule 19."""
    await replicated(cluster)
    cluster.cut(ONE, TWO)
    await cluster.produce(b"a", at=ONE, acks=1)
    assert (await follower_fetch(cluster)).records
    assert not (await cluster.fetch(0, at=ONE)).records
    assert cluster[ONE].partition().high_watermark == 0


@plays(brokers=2)
async def test_only_a_fetch_of_this_epoch_says_what_a_follower_has(cluster: Cluster) -> None:
    """TRAPS rule 10."""
    await replicated(cluster)
    cluster.cut(ONE, TWO)
    await cluster.produce(b"a", at=ONE, acks=1)
    await cluster.until(lambda: cluster[ONE].log().synced_end == 1)
    epoch = cluster.image().leader_epoch
    old = await follower_fetch(cluster, offset=1, leader_epoch=epoch - 1)
    assert old.error_code in {FencedLeaderEpoch.code, UnknownLeaderEpoch.code}
    new = await follower_fetch(cluster, offset=1, leader_epoch=epoch + 1)
    assert new.error_code == UnknownLeaderEpoch.code
    assert cluster[ONE].partition().high_watermark == 0
    assert (await follower_fetch(cluster, offset=1)).error_code == 0
    assert cluster[ONE].partition().high_watermark == 1


@plays(brokers=2)
async def test_a_fetch_of_a_brokers_run_before_says_nothing(cluster: Cluster) -> None:
    """TRAPS rule 12."""
    await replicated(cluster)
    cluster.cut(ONE, TWO)
    await cluster.produce(b"a", at=ONE, acks=1)
    await cluster.until(lambda: cluster[ONE].log().synced_end == 1)
    stale = await follower_fetch(cluster, offset=1, broker_epoch=1)
    assert stale.error_code == NotLeader.code
    assert cluster[ONE].partition().high_watermark == 0


@plays(brokers=2)
async def test_a_follower_is_answered_though_consumers_hold_all_memory_for_replies(
    cluster: Cluster,
) -> None:
    """Else it would leave the ISR, and acks=all would be refused, because consumers are slow."""
    await replicated(cluster)
    memory = cluster[ONE].broker.memory
    memory.charge(memory.available_for_replies)
    for value in (b"a", b"b", b"c"):
        assert (await cluster.produce(value, at=ONE)).error_code == 0
    await cluster.pass_time(3 * LAG_MS)
    assert cluster.image().isr == (ONE, TWO)
    # Consumers have had theirs.
    assert not (await cluster.fetch(0, at=ONE)).records


@plays(brokers=2)
async def test_a_follower_that_is_read_for_from_the_disk_takes_of_what_is_kept_for_followers(
    cluster: Cluster,
) -> None:
    await replicated(cluster, b"a")
    cluster.cut(ONE, TWO)
    memory, log = cluster[ONE].broker.memory, cluster[ONE].log()
    memory.charge(memory.available_for_replies)
    read, kept = log.read, [memory.available_for_followers]

    def cold_read(spec: ReadSpec) -> Any:
        if spec.cached_only:
            raise NotCached
        kept.append(memory.available_for_followers)
        return read(spec)

    log.read = cold_read  # type: ignore[method-assign]
    log._parts.tail.clear()
    assert (await follower_fetch(cluster)).records
    # As much as it asks for at the most, until it is read and the connection charges it.
    assert kept == [memory.followers_share, memory.followers_share - (1 << 20)]
    await cluster.pass_time(1)
    assert memory.available_for_followers == memory.followers_share


@plays(brokers=2)
async def test_who_only_calls_itself_a_follower_gets_no_memory_that_is_kept_for_followers(
    cluster: Cluster,
) -> None:
    """Not even with an epoch that is larger than all, which may be one of which the leader has not heard yet."""
    await replicated(cluster)
    cluster.cut(ONE, TWO)
    await cluster.produce(b"a", at=ONE, acks=1)
    memory = cluster[ONE].broker.memory
    memory.charge(memory.available_for_replies)
    assert (await follower_fetch(cluster)).records
    pretended = await follower_fetch(cluster, broker_epoch=1 << 40)
    assert (pretended.error_code, pretended.records or b"") == (0, b"")


@plays(brokers=2)
async def test_a_fetch_beyond_what_both_have_says_nothing(cluster: Cluster) -> None:
    await replicated(cluster, b"a")
    cluster.cut(ONE, TWO)
    assert (await follower_fetch(cluster, offset=9)).error_code == OffsetOutOfRange.code
    parted = await follower_fetch(cluster, offset=9, last_fetched_epoch=0)
    assert (parted.diverging_epoch.epoch, parted.diverging_epoch.end_offset) == (0, 1)
    assert cluster[ONE].partition().high_watermark == 1


@plays(brokers=2)
async def test_a_follower_is_not_served_by_a_follower(cluster: Cluster) -> None:
    await replicated(cluster)
    assert (await follower_fetch(cluster, at=TWO)).error_code == NotLeader.code


@plays(brokers=2)
async def test_a_follower_waits_at_its_leader_for_records_and_not_for_commits(
    cluster: Cluster,
) -> None:
    await replicated(cluster)
    before = len(cluster.asked)
    produced = await cluster.produce(b"a", at=ONE)
    assert produced.error_code == 0
    fetches = [one for _, _, one in cluster.asked[before:] if one.api.key == Api.FETCH]
    assert 1 <= len(fetches) <= 3


@plays(brokers=2)
async def test_a_follower_is_lent_what_is_committed_and_never_more(cluster: Cluster) -> None:
    """1. A leader lends what is not committed.   2. It leads no more, cuts that off, and writes what others have.

    3. The follower reads some of the one and some of the other.
    """
    await replicated(cluster, b"a", b"b")
    cluster.cut(ONE, TWO)
    await cluster.produce(b"c", at=ONE, acks=1)
    log = cluster[ONE].log()
    marks: dict[str, Any] = {"last_stable_offset": Offset(2), "high_watermark": Offset(2)}
    reader, elsewhere = (
        FollowerReader(
            cluster[ONE].broker, follower=TWO, broker_epoch=1, reads_locally=reads_locally
        )
        for reads_locally in (True, False)
    )
    assert reader.end(log, **marks) == 3
    assert reader.local_read_end(log, **marks) == 2
    assert elsewhere.local_read_end(log, **marks) is None


@plays(brokers=2)
async def test_a_follower_that_is_lent_something_is_answered_at_once(cluster: Cluster) -> None:
    await replicated(cluster, b"a", b"b")
    reader = FollowerReader(cluster[ONE].broker, follower=TWO, broker_epoch=1, reads_locally=True)
    target = FetchTarget(topic=TOPIC, partition=0, fetch_offset=0, bytes_max=1 << 20)
    nothing = FetchedPartition(0, 0, 2, 2, 0, b"")
    place = FileRange(path="/log", device=1, inode=2, position=0, size=10, head=b"")
    partition = cluster[ONE].partition()
    assert reader.has_more(partition, target, nothing)
    assert not reader.has_more(partition, target, nothing._replace(file_range=place))


@plays(brokers=2)
async def test_where_files_change_under_a_reader_nothing_is_lent(cluster: Cluster) -> None:
    marks: dict[str, Any] = {"last_stable_offset": Offset(0), "high_watermark": Offset(0)}
    changing: list[dict[str, Any]] = [
        {"unclean_leader_election_enable": "true"},
        {"file_delete_delay_ms": "19999"},
    ]
    for number, settings in enumerate([{}, *changing]):
        await cluster.create([1, 2], topic=f"topic-{number}", **settings)
        broker, log = cluster[ONE].broker, cluster[ONE].partition(0, f"topic-{number}").log
        readers = (
            FollowerReader(broker, follower=TWO, broker_epoch=1, reads_locally=True),
            ConsumerReader(broker, version=13, read_committed=True, reads_locally=True),
        )
        for reader in readers:
            assert reader.local_read_end(log, **marks) == (None if settings else 0)


@plays(brokers=2)
async def test_a_consumer_nearby_is_lent_what_it_may_read(cluster: Cluster) -> None:
    await replicated(cluster, b"a", b"b")
    log = cluster[ONE].log()
    marks: dict[str, Any] = {"last_stable_offset": Offset(1), "high_watermark": Offset(2)}
    for read_committed, end in ((True, 1), (False, 2)):
        near, far = (
            ConsumerReader(
                cluster[ONE].broker,
                version=13,
                read_committed=read_committed,
                reads_locally=reads_locally,
            )
            for reads_locally in (True, False)
        )
        assert near.local_read_end(log, **marks) == near.end(log, **marks) == end
        assert far.local_read_end(log, **marks) is None


# -- consumers at followers ------------------------------------------------------------------------------------------


@plays(brokers=2)
async def test_a_consumer_reads_at_a_follower_what_that_knows_to_be_committed(
    cluster: Cluster,
) -> None:
    await replicated(cluster, b"a", b"b")
    read = await cluster.fetch(0, at=TWO)
    assert (read.error_code, read.high_watermark) == (0, 2)
    assert read.records
    beyond = await cluster.fetch(5, at=TWO, rack_id=RACK, leader_epoch=0)
    assert beyond.error_code == OffsetOutOfRange.code


@plays(brokers=2)
async def test_what_a_follower_does_not_know_to_be_committed_is_not_available_yet(
    cluster: Cluster,
) -> None:
    await replicated(cluster, b"a")
    cluster.replies_may_pass.clear()
    await cluster.pass_time(100)
    partition = cluster[TWO].partition()
    follower = partition.follower
    assert follower is not None
    follower._log_end = follower._durable_end = 3  # type: ignore[assignment]
    assert (await cluster.fetch(2, at=TWO)).error_code == OffsetNotAvailable.code
    follower._log_end = follower._durable_end = 1  # type: ignore[assignment]
    cluster.replies_may_pass.set()


@plays(brokers=2)
async def test_a_consumer_of_an_old_version_is_served_by_the_leader_alone(
    cluster: Cluster,
) -> None:
    await replicated(cluster, b"a")
    assert (await cluster.fetch(0, at=TWO, version=10)).error_code == NotLeader.code
    assert (await cluster.fetch(0, at=ONE, version=10)).records


@plays(brokers=2)
async def test_who_was_sent_to_no_follower_does_not_hear_from_one_that_there_is_nothing(
    cluster: Cluster,
) -> None:
    """
    1. A client that knows nothing of epochs hears from a broker that is behind who led long ago.   2. That one follows
       now, and is behind, too.   3. To hear that there is nothing at its offset would have the client begin anew.
    """
    await replicated(cluster, b"a")
    assert (await cluster.fetch(5, at=TWO)).error_code == NotLeader.code
    # It has a rack, and may have been sent here, or not.
    assert (await cluster.fetch(5, at=TWO, rack_id=RACK)).error_code == NotLeader.code
    assert (await cluster.fetch(5, at=ONE)).error_code == OffsetOutOfRange.code


@plays(brokers=2)
async def test_a_consumer_that_waits_at_a_follower_is_told_when_that_hears_of_a_commit(
    cluster: Cluster,
) -> None:
    await replicated(cluster, b"a")
    began = cluster.loop.time()
    waiting = asyncio.ensure_future(cluster.fetch(1, at=TWO, max_wait=30_000))
    await cluster.pass_time(50)
    await cluster.produce(b"b", at=ONE)
    assert (await waiting).records
    assert cluster.loop.time() - began < 1


@plays(brokers=2)
async def test_a_consumer_that_waits_at_a_follower_hears_when_that_is_to_lead(
    cluster: Cluster,
) -> None:
    await replicated(cluster, b"a")
    waiting = asyncio.ensure_future(cluster.fetch(1, at=TWO, max_wait=30_000))
    await cluster.pass_time(50)
    cluster[ONE].kill()
    await cluster.until_led(TWO)
    await cluster.until(waiting.done)
    assert cluster.loop.time() < 30


# -- the closest replica ---------------------------------------------------------------------------------------------


async def racks(cluster: Cluster) -> None:
    """Broker 1 stands in rack a, broker 2 in rack b."""
    for node, rack in ((ONE, "a"), (TWO, "b")):
        await cluster[node].stop()
        await cluster[node].start(rack=rack)


@plays(brokers=2)
async def test_a_consumer_is_sent_to_the_replica_in_its_rack(cluster: Cluster) -> None:
    await racks(cluster)
    await replicated(cluster, b"a")
    sent = await cluster.fetch(0, at=ONE, rack_id="b")
    assert (sent.preferred_read_replica, sent.records or b"") == (TWO, b"")
    for rack in ("a", "c", ""):
        read = await cluster.fetch(0, at=ONE, rack_id=rack)
        assert read.preferred_read_replica == -1
        assert read.records


@plays(brokers=2)
async def test_nobody_is_sent_to_a_replica_that_is_not_in_sync(cluster: Cluster) -> None:
    await racks(cluster)
    await replicated(cluster, b"a")
    cluster.cut(ONE, TWO)
    await cluster.produce(b"b", at=ONE, acks=1)
    await cluster.until_in_sync(1)
    assert (await cluster.fetch(0, at=ONE, rack_id="b")).preferred_read_replica == -1


@plays(brokers=2)
async def test_a_consumer_with_a_session_hears_that_it_is_sent_away_though_nothing_else_is_new(
    cluster: Cluster,
) -> None:
    """Left out as if it had no news, it would ask again at once, and again."""
    await racks(cluster)
    await replicated(cluster, b"a")
    cluster.cut(ONE, TWO)
    await cluster.produce(b"b", at=ONE, acks=1)
    await cluster.until_in_sync(1)

    async def ask(session_id: int, epoch: int) -> Any:
        wanted = {
            "partition": 0,
            "current_leader_epoch": -1,
            "fetch_offset": 2,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": 1 << 20,
        }
        return await cluster[ONE].ask(
            Api.FETCH,
            SESSION_VERSION,
            replica_id=-1,
            max_wait=10,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=0,
            session_id=session_id,
            session_epoch=epoch,
            topics=[{"topic": TOPIC, "partitions": [wanted]}] if not epoch else [],
            forgotten_topics_data=[],
            rack_id="b",
        )

    first = await ask(0, 0)
    assert first.responses[0].partitions[0].preferred_read_replica == -1
    assert (await ask(first.session_id, 1)).responses == ()
    cluster.heal()
    await cluster.until_in_sync(1, 2)
    sent = await ask(first.session_id, 2)
    assert sent.responses[0].partitions[0].preferred_read_replica == TWO


# -- another thread --------------------------------------------------------------------------------------------------


class Resigning(Partition):
    """Has no role any more when it is looked at for the second time."""

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if name in {"leader", "follower"} and value is not None:
            looks = self.__dict__["looks"] = self.__dict__.get("looks", 0) + 1
            return None if looks > 1 else value
        return value


@plays(brokers=2)
async def test_a_role_that_ends_while_another_thread_reads_is_there_or_gone(
    cluster: Cluster,
) -> None:
    await racks(cluster)
    await replicated(cluster, b"a")
    for node, rack in ((ONE, "b"), (TWO, "")):
        partition = cluster[node].partition()
        cluster[node].broker.partitions.find_readable = (  # type: ignore[method-assign]
            lambda *_, found=partition: found
        )
        partition.__class__ = Resigning
        read = await cluster.fetch(0, at=node, rack_id=rack)
        assert read.error_code == 0
        partition.__class__ = Partition


@plays(brokers=2)
async def test_what_a_follower_was_read_while_the_leadership_ended_is_not_sent(
    cluster: Cluster,
) -> None:
    """
    1. A follower's fetch is read from the disk, which takes its time.   2. The leader is none any more, cuts its log
       off, and goes on with another one's records.   3. What the read returns lies behind others than the follower has.
    """
    await replicated(cluster, b"a")
    cluster.cut(ONE, TWO)
    log = cluster[ONE].log()
    read = log.read

    def slow_read(spec: ReadSpec) -> Any:
        if spec.cached_only:
            raise NotCached
        cluster[ONE].in_process(lambda: cluster[ONE].partition().role.resign("as the test wants"))
        return read(spec)

    log.read = slow_read  # type: ignore[method-assign]
    log._parts.tail.clear()
    fetched = await follower_fetch(cluster)
    assert (fetched.error_code, bool(fetched.records)) == (NotLeader.code, False)


# -- where the log ends ----------------------------------------------------------------------------------------------


@plays(brokers=2)
async def test_a_new_leader_does_not_tell_the_end_before_it_knows_it(cluster: Cluster) -> None:
    """TRAPS rule 4: neither the latest offset nor that a time has none. What lies before is told."""
    await replicated(cluster, b"a")
    later_ms = cluster.clock.now_ms() + 1_000
    partition = cluster[ONE].partition()
    leader = partition.leader
    assert leader is not None
    leader.first_offset_of_epoch = type(leader.first_offset_of_epoch)(2)
    for timestamp in (LATEST, -3, later_ms):
        told = await cluster.offset(timestamp, at=ONE)
        assert told.error_code == OffsetNotAvailable.code, timestamp
    assert (await cluster.offset(0, at=ONE)).offset == 0
    assert (await cluster.offset(-2, at=ONE)).error_code == 0
    leader.first_offset_of_epoch = type(leader.first_offset_of_epoch)(1)
    assert (await cluster.offset(LATEST, at=ONE)).offset == 1
    assert (await cluster.offset(later_ms, at=ONE)).offset == -1


@plays(brokers=2)
async def test_a_follower_is_told_where_the_log_ends_committed_or_not(cluster: Cluster) -> None:
    await replicated(cluster, b"a")
    cluster.cut(ONE, TWO)
    await cluster.produce(b"b", at=ONE, acks=1)
    wish = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": LATEST}
    reply = await cluster[ONE].ask(
        Api.LIST_OFFSETS,
        LIST_OFFSETS_VERSION,
        replica_id=TWO,
        isolation_level=0,
        topics=[{"name": TOPIC, "partitions": [wish]}],
    )
    assert reply.topics[0].partitions[0].offset == 2
    assert (await cluster.offset(LATEST, at=ONE)).offset == 1
