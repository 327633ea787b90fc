"""Brokers of a cluster archive to one bucket, on simulated time."""

import asyncio
import os
from collections.abc import Callable
from random import Random

import pytest

from broker.archive.archive_story import (
    SETTINGS,
    Story,
    archived,
    create_archived,
    keys_of,
    read_values,
)
from broker.cluster_world import ONE, TWO, Cluster, plays
from respool.archive.upload_machine import UploadMachine, UploadState
from respool.broker.archive.archive import Archive
from respool.broker.archive.partition_archive import PartitionArchive
from respool.broker.metadata.partition_changes import PartitionChanges
from respool.model.ids import BrokerId, Offset, TopicPartition


async def produce(cluster: Cluster, count: int, *, at: BrokerId = ONE) -> None:
    for number in range(count):
        done = await cluster.produce(b"%d" % number + b"." * 100, at=cluster[at].id)
        assert done.error_code == 0


async def until_archived(cluster: Cluster, end: int, *, at: BrokerId = ONE) -> None:
    await cluster.until(lambda: cluster[at].log().local_start >= end)


@plays(brokers=2, **SETTINGS)
async def test_a_failover_continues_where_the_archive_ends(cluster: Cluster) -> None:
    await create_archived(cluster, 1, 2)
    await produce(cluster, 40)
    await until_archived(cluster, 40)
    before = archived(cluster)
    cluster[ONE].kill()
    await cluster.until_led(TWO)
    await produce(cluster, 40, at=TWO)
    await until_archived(cluster, 80, at=TWO)
    after = archived(cluster)
    assert after.segments[: len(before.segments)] == before.segments
    assert after.leader_epoch > before.leader_epoch
    found = await read_values(cluster, TWO)
    assert [int(found[at].rstrip(b".")) for at in range(80)] == [*range(40), *range(40)]


@plays(brokers=2, **SETTINGS)
async def test_a_follower_removes_what_its_leader_archived(cluster: Cluster) -> None:
    await create_archived(cluster, 1, 2)
    await produce(cluster, 40)
    await until_archived(cluster, 40)
    await cluster.until(lambda: cluster[TWO].log().local_start >= 30)
    assert cluster[TWO].log().log_start == 0


@plays(brokers=2, **SETTINGS)
async def test_a_new_replica_copies_what_is_archived_from_its_leader(cluster: Cluster) -> None:
    await create_archived(cluster, 1)
    await produce(cluster, 40)
    await until_archived(cluster, 40)
    await cluster[ONE].run(
        PartitionChanges(cluster[ONE].broker.catalog).reassign(
            {TopicPartition("rides", 0): (ONE, TWO)}, may_change_factor=True
        )
    )
    await cluster.until_in_sync(1, 2)
    assert cluster[TWO].log().log_start == 0
    cluster[ONE].kill()
    await cluster.until_led(TWO)
    assert len(await read_values(cluster, TWO)) == 40


@plays(brokers=1, **SETTINGS)
async def test_an_idle_archive_costs_no_requests(cluster: Cluster) -> None:
    await create_archived(cluster, 1)
    await cluster.pass_time(5_000)
    assert cluster.objects.requests == []
    await produce(cluster, 20)
    await until_archived(cluster, 20)
    await cluster.pass_time(2_000)
    cluster.objects.requests.clear()
    await cluster.pass_time(3_600_000)
    assert cluster.objects.requests == []


@plays(brokers=1, **SETTINGS)
async def test_one_download_serves_all_who_want_a_chunk(cluster: Cluster) -> None:
    await create_archived(cluster, 1)
    await produce(cluster, 40)
    await until_archived(cluster, 40)
    cluster.objects.requests.clear()
    cluster.objects.faults.latency_ms_max = 50
    parts = await asyncio.gather(*(cluster.fetch(0, at=ONE, max_wait=5_000) for _ in range(10)))
    assert len({bytes(one.records) for one in parts}) == 1
    assert parts[0].records
    reads = [one for one in cluster.objects.requests if one.startswith("read")]
    # The trailer and the chunk.
    assert len(reads) == 2


@plays(brokers=1, **SETTINGS)
async def test_a_fetch_that_ends_early_does_not_end_the_download(cluster: Cluster) -> None:
    """Kafka's consumers spin where the download of each attempt is cancelled (KAFKA-15776)."""
    await create_archived(cluster, 1)
    await produce(cluster, 20)
    await until_archived(cluster, 20)
    cluster.objects.faults.latency_ms_max = 40_000
    cluster.objects.rng = Random(4)
    found = b""
    for _ in range(30):
        part = await cluster.fetch(0, at=ONE, max_wait=100)
        assert part.error_code in {0, 56}
        found = bytes(part.records or b"")
        if found:
            break
    assert found


@plays(brokers=1, **SETTINGS)
async def test_flipped_bits_are_never_served(cluster: Cluster) -> None:
    await create_archived(cluster, 1)
    await produce(cluster, 60)
    await until_archived(cluster, 60)
    cluster.objects.faults.bit_flip = 0.5
    found = await read_values(cluster, ONE)
    assert [int(found[at].rstrip(b".")) for at in range(60)] == list(range(60))


@plays(brokers=1, **SETTINGS)
async def test_a_store_that_stays_away_is_a_storage_error_and_no_skip(cluster: Cluster) -> None:
    await create_archived(cluster, 1)
    await produce(cluster, 20)
    await until_archived(cluster, 20)
    cluster.objects.faults.is_away = True
    codes = {(await cluster.fetch(0, at=ONE, max_wait=6_000)).error_code for _ in range(8)}
    # Slow: nothing yet; away: KAFKA_STORAGE_ERROR. Never OFFSET_OUT_OF_RANGE.
    assert codes == {0, 56}
    cluster.objects.faults.heal()
    assert len(await read_values(cluster, ONE)) == 20


@plays(brokers=1, **SETTINGS)
async def test_a_missing_manifest_entry_stops_the_partition(cluster: Cluster) -> None:
    await create_archived(cluster, 1)
    await produce(cluster, 40)
    await until_archived(cluster, 40)
    objects = cluster.objects.objects
    del objects[keys_of(cluster).entry(2)]
    before = dict(objects)
    await cluster[ONE].stop()
    await cluster[ONE].start()
    await cluster.until_led(ONE)
    await produce(cluster, 40)
    await cluster.pass_time(5_000)
    assert objects == before
    assert cluster[ONE].log().local_start <= 40
    assert (await cluster.fetch(0, at=ONE, max_wait=5_000)).error_code == 56
    assert (await cluster.fetch(60, at=ONE)).error_code == 0


@plays(brokers=1, **SETTINGS)
async def test_deleting_the_archive_with_the_setting_keeps_what_is_local(cluster: Cluster) -> None:
    await create_archived(cluster, 1, local_retention_ms=-2)
    await produce(cluster, 40)
    await cluster.until(lambda: archived(cluster).archived_end == 40)
    topics = cluster[ONE].broker.topics
    overrides = {
        "remote.storage.enable": "false",
        "remote.log.delete.on.disable": "true",
        "segment.bytes": "1024",
    }
    await cluster[ONE].run(topics.change_overrides("rides", lambda _: overrides))
    await cluster.until(lambda: not archived(cluster).segments)
    assert len(await read_values(cluster, ONE)) == 40


def story(seed: int, *, brokers: int = 2, steps: int = 40) -> None:
    @plays(brokers=brokers, **SETTINGS)
    async def play(cluster: Cluster) -> None:
        await Story(cluster, Random(seed)).run(steps=steps)

    play()


@pytest.mark.parametrize("seed", range(8))
def test_whatever_fails_no_acknowledged_record_is_lost(seed: int) -> None:
    story(seed)


@pytest.mark.long
@pytest.mark.skipif(os.environ.get("RESPOOL_FUZZ") != "long", reason="make fuzz")
@pytest.mark.parametrize("seed", range(100, 400))
def test_whatever_fails_no_acknowledged_record_is_lost_in_many_runs(seed: int) -> None:
    story(seed, brokers=2 + seed % 2, steps=80)


# -- planted bugs: each must be found -------------------------------------------------------------------------------


def local_deletion_before_the_entry(patch: pytest.MonkeyPatch) -> None:
    """Trap 5: local segments go once they were uploaded, before the entry exists."""
    begin = UploadMachine.begin_entry
    ends: dict[int, Offset] = {}

    def begin_entry(self: UploadMachine, entry: object) -> object:
        ends[id(self.manifest)] = getattr(entry, "next", Offset(0))
        return begin(self, entry)  # type: ignore[arg-type]

    def archived_end(self: PartitionArchive) -> Offset:
        known = (self.manifest and self.manifest.archived_end) or Offset(0)
        return max(known, ends.get(id(self.manifest), Offset(0)))

    patch.setattr(UploadMachine, "begin_entry", begin_entry)
    patch.setattr(PartitionArchive, "archived_end", property(archived_end))


def an_unclear_answer_counts_as_written(patch: pytest.MonkeyPatch) -> None:
    """Traps 7 and 8: 409 or no answer is taken for success, without looking."""

    def look(self: UploadMachine) -> None:
        entry = self._entry
        assert entry is not None
        self.manifest.apply(self.manifest.next_number, entry)
        self.state = UploadState.IDLE

    patch.setattr(UploadMachine, "_look", look)


def archived_offsets_are_out_of_range(patch: pytest.MonkeyPatch) -> None:
    """Trap 1."""
    from respool.model.errors import OffsetOutOfRange

    async def read(self: Archive, *_: object, **__: object) -> object:
        raise OffsetOutOfRange("it is not local")

    patch.setattr(Archive, "read", read)


def chunks_are_not_checked(patch: pytest.MonkeyPatch) -> None:
    """Trap 19."""
    from respool.archive.segment_trailer import SegmentTrailer

    patch.setattr(SegmentTrailer, "check_chunk", lambda *_, **__: None)


def in_some_seed() -> None:
    for seed in range(40):
        story(seed)


PLANTED: list[tuple[Callable[[pytest.MonkeyPatch], None], Callable[[], None]]] = [
    (local_deletion_before_the_entry, in_some_seed),
    (an_unclear_answer_counts_as_written, in_some_seed),
    (archived_offsets_are_out_of_range, in_some_seed),
    (chunks_are_not_checked, test_flipped_bits_are_never_served),
]


@pytest.mark.parametrize(("plant", "found_by"), PLANTED, ids=lambda one: one.__name__)
def test_planted_bugs_are_found(
    plant: Callable[[pytest.MonkeyPatch], None],
    found_by: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    with pytest.raises(Exception):  # noqa: B017, PT011
        found_by()
