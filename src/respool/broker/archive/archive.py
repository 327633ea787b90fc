"""The broker's archive: uploads segments of partitions led here, allows retention to remove them locally, and reads
them for consumers.

A broker without the setting `archive` has none of this. Everything is loaded per partition when it is first needed: a
partition with nothing to upload, expire or read costs no request.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, NoReturn

from respool.archive.manifest import Manifest
from respool.broker.archive.archived_reads import ArchivedBatches, ArchivedReads
from respool.broker.archive.chunk_cache import ChunkCache
from respool.broker.archive.leader_archive import LeaderArchive, NotLeading, align_log_start
from respool.broker.archive.manifest_files import follow_manifest, load_manifest
from respool.broker.archive.ownership import Ownership
from respool.broker.archive.partition_archive import PartitionArchive
from respool.broker.archive.segment_upload import UploadPace
from respool.broker.archive.topic_descriptions import TopicDescriptions
from respool.broker.partitions.partition import Partition
from respool.broker.partitions.registry import Partitions
from respool.log.partition_log import AbortedTransaction, TimestampedOffset
from respool.model.archiving.archive_errors import (
    UNAVAILABLE_KINDS,
    ArchiveCorrupt,
    ArchivedReadFailed,
    ArchiveRefused,
    ArchiveUnavailable,
)
from respool.model.archiving.archive_settings import ArchiveSettings
from respool.model.cluster import ClusterImage
from respool.model.delays.kept_records import KEPT_NONE, OFFSET_MAX
from respool.model.errors import OffsetOutOfRange, RequestError, StorageError
from respool.model.ids import BrokerId, Offset
from respool.pacing.backoff import Backoff
from respool.pacing.token_bucket import TokenBucket
from respool.ports.clock import Clock
from respool.ports.metrics import Family, Metrics
from respool.ports.object_store import ObjectStore
from respool.ports.offload import Offload
from respool.ports.random_source import RandomSource

logger = logging.getLogger(__name__)

FIRST_RETRY_MS = 500


class Archive:
    def __init__(
        self,
        *,
        me: BrokerId,
        cluster_id: str,
        store: ObjectStore,
        settings: ArchiveSettings,
        partitions: Partitions,
        image: Callable[[], ClusterImage],
        clock: Clock,
        rng: RandomSource,
        offload: Offload,
        metrics: Metrics,
        may_act: Callable[[], bool],
        deletable_to: Callable[[Partition], Offset],
        spawn: Callable[[Coroutine[Any, Any, Any]], "asyncio.Task[Any]"],
    ) -> None:
        """`deletable_to`: the first offset of a partition that delayed records still need."""
        self.me = me
        self.store = store
        self.settings = settings
        self.clock = clock
        self.rng = rng
        self.offload = offload
        self.may_act = may_act
        self.pace: UploadPace = UploadThrottle(settings.upload_bytes_per_s_max, clock)
        self._partitions = partitions
        self._deletable_to = deletable_to
        self._archives: dict[Partition, PartitionArchive] = {}
        self._chunks = ChunkCache(
            store,
            clock=clock,
            spawn=spawn,
            metrics=metrics,
            bytes_max=settings.cache_bytes_max,
            patience_ms=settings.lookup_ms,
        )
        self._reads = ArchivedReads(
            self._chunks, offload=offload, read_ahead_bytes=settings.read_ahead_bytes
        )
        self._ownership = Ownership(store, cluster_id=cluster_id, broker=me, clock=clock, rng=rng)
        self._descriptions = TopicDescriptions(store, image=image)
        self._uploads = asyncio.Semaphore(settings.uploads_max)
        self._backoff = Backoff(
            first=min(FIRST_RETRY_MS, settings.retry_ms_max),
            longest=settings.retry_ms_max,
            jitter=0.3,
        )
        self._uploaded_bytes = metrics.counter(
            "respool_archive_uploaded_bytes_total", "Bytes of records that this broker archived."
        )
        self._failures = {
            kind: metrics.counter(
                "respool_archive_failures_total",
                "Failed attempts to archive, by kind; they are retried.",
                kind=kind,
            )
            for kind in (*UNAVAILABLE_KINDS, "corrupt", "refused")
        }
        metrics.add_collector(self._collect)

    # -- for uploads: ArchiveWorld --------------------

    async def prepare(self, archive: PartitionArchive) -> None:
        await self._ownership.check()
        await self._descriptions.write(archive.partition)

    def on_uploaded(self, byte_count: int) -> None:
        self._uploaded_bytes.inc(byte_count)

    def kept_from(self, archive: PartitionArchive) -> Offset:
        return self._deletable_to(archive.partition)

    # -- background work --------------------

    async def run(self) -> NoReturn:
        while True:
            await asyncio.sleep(self.settings.check_ms / 1000)
            await self.work()

    async def work(self) -> None:
        """Archive and expire segments of all partitions, a few partitions at a time."""
        for partition in [one for one in self._archives if one.is_detached]:
            del self._archives[partition]
        async with asyncio.TaskGroup() as group:
            for partition in list(self._partitions):
                if partition.is_online and self._concerns(partition):
                    group.create_task(self._work_on(partition))

    def _concerns(self, partition: Partition) -> bool:
        return partition.config.remote_storage_enable or partition in self._archives

    async def _work_on(self, partition: Partition) -> None:
        archive = self.of(partition)
        if archive.retry_at_ms > self.clock.monotonic_ms():
            return
        async with self._uploads:
            try:
                if partition.is_leading:
                    await self._lead(archive)
                else:
                    archive.machine = None
                    await self._follow(archive)
            except NotLeading:
                archive.machine = None
            except (ArchiveUnavailable, ArchiveCorrupt, ArchiveRefused) as error:
                self._on_failure(archive, error)
            except (StorageError, RequestError) as error:
                logger.warning("%s: not archived now: %s", partition.name, error)
                self._put_off(archive)
            else:
                archive.failure, archive.failures = None, 0

    async def _lead(self, archive: PartitionArchive) -> None:
        partition = archive.partition
        config, log = partition.config, partition.log
        is_copied = config.remote_storage_enable and not config.remote_log_copy_disable
        if is_copied and log.roll_if_due(self.clock.now_ms(), to_archive=True):
            partition.syncs.request_sync(partition)
        is_needed = (
            archive.manifest is not None or log.segment_count > 1 or log.log_start < log.local_start
        )
        if not is_needed or not self.may_act():
            return
        async with archive.lock:
            work = await self._leadership(archive)
            if not config.remote_storage_enable:
                await work.drop_all()
                del self._archives[partition]
                return
            await work.run()

    async def _leadership(self, archive: PartitionArchive) -> LeaderArchive:
        """The work of the current leadership; a new one reads the manifest again."""
        work = archive.work
        if isinstance(work, LeaderArchive) and work.is_current and archive.machine is work.machine:
            return work
        archive.manifest = await load_manifest(self.store, archive.keys)
        work = LeaderArchive(self, archive, archive.manifest)
        archive.work = work
        return work

    async def _follow(self, archive: PartitionArchive) -> None:
        """A follower reads the manifest only when retention could then remove segments."""
        partition = archive.partition
        log = partition.log
        if not partition.config.remote_storage_enable:
            del self._archives[partition]
            if log.log_start < log.local_start:
                log.raise_log_start(log.local_start)
            return
        removable = log.expired_end(
            now_ms=self.clock.now_ms(),
            high_watermark=partition.high_watermark,
            kept=KEPT_NONE._replace(archived_end=OFFSET_MAX),
        )
        if removable is not None and removable > archive.archived_end:
            async with archive.lock:
                await self._read_manifest(archive)

    async def _read_manifest(self, archive: PartitionArchive) -> Manifest:
        """Load the manifest, or read what was added to it. The lock is held."""
        if archive.manifest is None:
            archive.manifest = await load_manifest(self.store, archive.keys)
        else:
            await follow_manifest(self.store, archive.manifest)
        align_log_start(archive, archive.manifest)
        return archive.manifest

    def _on_failure(
        self, archive: PartitionArchive, error: ArchiveUnavailable | ArchiveCorrupt | ArchiveRefused
    ) -> None:
        name = archive.partition.name
        if isinstance(error, ArchiveUnavailable):
            kind = error.kind
            logger.warning(
                "%s: cannot be archived now and will be retried, nothing is lost: %s", name, error
            )
        else:
            kind = "corrupt" if isinstance(error, ArchiveCorrupt) else "refused"
            logger.error(
                "%s: nothing is archived or removed until an operator acts: %s", name, error
            )
        archive.failure = error
        archive.machine = None
        self._failures[kind].inc()
        self._put_off(archive)

    def _put_off(self, archive: PartitionArchive) -> None:
        archive.failures += 1
        delay_ms = self._backoff.delay(archive.failures, random=lambda: self.rng.below(1000) / 1000)
        archive.retry_at_ms = self.clock.monotonic_ms() + int(delay_ms)

    # -- for retention --------------------

    def of(self, partition: Partition) -> PartitionArchive:
        found = self._archives.get(partition)
        if found is None:
            found = self._archives[partition] = PartitionArchive(partition)
        return found

    def archived_end(self, partition: Partition) -> Offset:
        """Local segments below this offset may be removed."""
        found = self._archives.get(partition)
        return Offset(0) if found is None else found.archived_end

    # -- for readers --------------------

    async def manifest(self, partition: Partition, *, offset: Offset | None = None) -> Manifest:
        """Return the manifest; it is read again if it does not have the offset yet.

        Raises:
            ArchivedReadFailed: it cannot be read.
        """
        archive = self.of(partition)
        manifest = archive.manifest
        if manifest is None or (offset is not None and manifest.find(offset) is None):
            try:
                async with archive.lock:
                    manifest = await self._read_manifest(archive)
            except (ArchiveUnavailable, ArchiveCorrupt) as error:
                raise ArchivedReadFailed(f"{partition.name}: {error}") from error
        return manifest

    async def read(
        self,
        partition: Partition,
        offset: Offset,
        *,
        max_offset: Offset,
        bytes_max: int,
        with_aborted: bool,
        with_empty: bool = False,
    ) -> ArchivedBatches:
        """Read archived batches from the one with `offset` on.

        Raises:
            ArchivedReadFailed: they cannot be read now.
            OffsetOutOfRange: they were deleted.
        """
        manifest = await self.manifest(partition, offset=offset)
        segment = manifest.find(offset)
        if segment is None:
            log = partition.log
            if offset < log.log_start:
                raise OffsetOutOfRange(
                    f"{partition.name}: offset {offset}, the log starts at {log.log_start}"
                )
            raise ArchivedReadFailed(f"{partition.name}: the archive has no offset {offset}")
        try:
            found = await self._reads.batches(
                manifest,
                segment,
                offset=offset,
                max_offset=max_offset,
                bytes_max=bytes_max,
                with_empty=with_empty,
            )
            if with_aborted:
                found = found._replace(
                    aborted=await self._aborted(partition, manifest, offset, found.end)
                )
        except (ArchiveUnavailable, ArchiveCorrupt) as error:
            if offset < partition.log_start:
                raise OffsetOutOfRange(f"{partition.name}: offset {offset} was deleted") from error
            if isinstance(error, ArchiveCorrupt):
                logger.error("%s: archived records cannot be read: %s", partition.name, error)
            raise ArchivedReadFailed(f"{partition.name}: {error}") from error
        return found

    async def _aborted(
        self, partition: Partition, manifest: Manifest, begin: Offset, end: Offset
    ) -> list[AbortedTransaction]:
        archived = await self._reads.aborted(manifest, begin, end)
        # Markers that are not archived yet are in the local log.
        log = partition.log
        local = await self.offload.run(lambda: log.locally_aborted_in(begin, end))
        known = {(one.producer_id, one.first_offset) for one in archived}
        archived += [one for one in local if (one.producer_id, one.first_offset) not in known]
        return archived

    async def first_at_or_after(
        self, partition: Partition, timestamp_ms: int, *, max_offset: Offset
    ) -> TimestampedOffset | None:
        """Find a record by its time among those that are archived only. Raises as `read`."""
        manifest = await self.manifest(partition)
        log = partition.log
        try:
            return await self._reads.first_at_or_after(
                manifest,
                timestamp_ms,
                begin=log.log_start,
                max_offset=min(max_offset, log.local_start),
            )
        except (ArchiveUnavailable, ArchiveCorrupt) as error:
            raise ArchivedReadFailed(f"{partition.name}: {error}") from error

    async def latest(self, partition: Partition) -> TimestampedOffset | None:
        """Find the archived record with the largest time. Raises as `read`."""
        manifest = await self.manifest(partition)
        try:
            return await self._reads.latest(manifest, begin=partition.log_start)
        except (ArchiveUnavailable, ArchiveCorrupt) as error:
            raise ArchivedReadFailed(f"{partition.name}: {error}") from error

    # -- metrics --------------------

    def _collect(self) -> Iterator[Family]:
        led = [one for one in self._archives.values() if one.partition.is_leading]
        known = [one.manifest for one in led if one.manifest is not None]
        for name, help_text, value in (
            (
                "respool_archive_bytes",
                "Archived bytes of partitions led here.",
                sum(one.log_bytes for one in known),
            ),
            (
                "respool_archive_segments",
                "Archived segments of partitions led here.",
                sum(len(one.segments) for one in known),
            ),
            (
                "respool_archive_pending_bytes",
                "Bytes of partitions led here that are not archived yet, active segments included.",
                sum(one.pending_bytes for one in led),
            ),
            (
                "respool_archive_failing_partitions",
                "Partitions led here whose last attempt to archive failed.",
                sum(one.failure is not None for one in led),
            ),
            (
                "respool_archive_cache_bytes",
                "Memory used by cached pieces of archived segments.",
                self._chunks.bytes_used,
            ),
        ):
            yield Family(name, "gauge", help_text, (), [((), value)])


class UploadThrottle:
    """Limits the bytes of all uploads."""

    def __init__(self, bytes_per_s_max: int, clock: Clock) -> None:
        self._clock = clock
        self._bucket = TokenBucket(rate_per_s=bytes_per_s_max) if bytes_per_s_max else None

    async def wait(self, byte_count: int) -> None:
        if self._bucket is None:
            return
        self._bucket.take(byte_count, now_ms=self._clock.monotonic_ms())
        await asyncio.sleep(self._bucket.wait_ms(now_ms=self._clock.monotonic_ms()) / 1000)
