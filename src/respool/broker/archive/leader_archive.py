"""The leader's work for one archived partition: load the manifest, upload segments, write entries, expire, delete."""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from respool.archive.manifest import Manifest
from respool.archive.manifest_entry import CutEntry, EntryAuthor, LogStartEntry, ManifestEntry
from respool.archive.two_tier_retention import expired_end
from respool.archive.upload_machine import (
    CreateEntry,
    Effect,
    ReadEntry,
    UploadMachine,
    UploadObject,
)
from respool.broker.archive.manifest_files import write_full
from respool.broker.archive.partition_archive import PartitionArchive
from respool.broker.archive.segment_upload import SegmentUpload, UploadPace
from respool.log.archive_source import SegmentToArchive
from respool.log.partition_log import PartitionLog
from respool.model.archiving.archive_errors import (
    ArchiveCorrupt,
    ArchiveUnavailable,
    ObjectMissing,
)
from respool.model.archiving.archive_settings import ArchiveSettings
from respool.model.ids import BrokerId, Offset
from respool.ports.clock import Clock
from respool.ports.object_store import Creation, ObjectStore
from respool.ports.offload import Offload
from respool.ports.random_source import RandomSource

logger = logging.getLogger(__name__)


class ArchiveWorld(Protocol):
    """What the work needs of the broker: `Archive`."""

    me: BrokerId
    store: ObjectStore
    clock: Clock
    rng: RandomSource
    offload: Offload
    settings: ArchiveSettings
    pace: UploadPace
    may_act: Callable[[], bool]

    async def prepare(self, archive: PartitionArchive) -> None:
        """Check that this cluster may write to the archive, and that the topic is described there.

        Raises:
            ArchiveRefused, ArchiveUnavailable: it may not, or the store does not answer.
        """

    def on_uploaded(self, byte_count: int) -> None: ...

    def kept_from(self, archive: PartitionArchive) -> Offset:
        """Records from here on must not expire: something waits for them."""


class NotLeading(Exception):
    """The leadership that the work belongs to has ended."""


class LeaderArchive:
    """Lives for one leadership."""

    def __init__(self, world: ArchiveWorld, archive: PartitionArchive, manifest: Manifest) -> None:
        self._world = world
        self._archive = archive
        self._manifest = manifest
        self._leader_epoch = archive.partition.leader_epoch
        self.machine = UploadMachine(
            manifest,
            leader_epoch=self._leader_epoch,
            retry_ms_max=world.settings.retry_ms_max,
            random=lambda: world.rng.below(1_000_000) / 1_000_000,
        )
        archive.machine = self.machine
        self._is_compared = False

    @property
    def is_current(self) -> bool:
        partition = self._archive.partition
        return (
            partition.is_leading
            and partition.is_online
            and partition.leader_epoch == self._leader_epoch
            and self._world.may_act()
        )

    async def run(self) -> None:
        """Do what is due.

        Raises:
            NotLeading: the leadership has ended.
            ArchiveUnavailable: the store fails.
            ArchiveCorrupt: the manifest contradicts itself or the log, or the log is damaged.
            StorageError: the disk fails.
        """
        self._check()
        if self.machine.is_over:
            raise NotLeading
        if not self._is_compared:
            await self._compare()
        self._expire()
        await self._write_log_start()
        while (
            not self._log.config.remote_log_copy_disable and (source := self.source()) is not None
        ):
            await self._upload(source)
        await self._delete_dropped()

    def source(self) -> SegmentToArchive | None:
        """The next segment to upload; None if there is none."""
        partition = self._archive.partition
        log = partition.log
        begin = self._manifest.archived_end
        begin = log.log_start if begin is None else begin
        if begin < log.local_start:
            # Neither archived nor here: only an operator knows more.
            raise ArchiveCorrupt(
                f"{partition.name}: the archive ends at offset {begin}, and the disk has {log.local_start} on: the "
                "records between are missing; DeleteRecords before that offset accepts their loss"
            )
        return log.segment_to_archive(begin, bound=partition.last_stable_offset)

    async def drop_all(self) -> None:
        """The topic is archived no longer: the log starts on the brokers' disks."""
        self._check()
        log = self._archive.partition.log
        if log.log_start < log.local_start:
            log.raise_log_start(log.local_start)
            self._archive.partition.on_log_start_moved()
        await self._write_log_start()
        await self._write(CutEntry(by=self._author(), end=log.log_start))
        await self._delete_dropped()

    async def _compare(self) -> None:
        """After an election: the archive must be of this log's history, and the log must start where it does."""
        log, manifest, partition = self._log, self._manifest, self._archive.partition
        diverges_at = manifest.diverges_at(log.epoch_entries)
        if diverges_at is not None:
            if not log.config.unclean_leader_election_enable or diverges_at <= manifest.log_start:
                raise ArchiveCorrupt(
                    f"{partition.name}: the archive has another history from offset {diverges_at} on than this "
                    "replica, although no unclean election may have taken place"
                )
            logger.warning(
                "%s: after an unclean election, what is archived from offset %d on is dropped",
                partition.name,
                diverges_at,
            )
            await self._write(CutEntry(by=self._author(), end=diverges_at))
        align_log_start(self._archive, manifest)
        self._is_compared = True

    def _expire(self) -> None:
        log, partition = self._log, self._archive.partition
        archived_end = self._manifest.archived_end
        if archived_end is None:
            return
        end = expired_end(
            self._manifest,
            log.config,
            now_ms=self._world.clock.now_ms(),
            local_bytes_beyond=log.size_from(archived_end) if archived_end < log.log_end else 0,
            kept_from=self._world.kept_from(self._archive),
        )
        if end is not None and end > log.log_start:
            logger.info(
                "%s: archived records before offset %d are out of retention", partition.name, end
            )
            log.raise_log_start(end)
            partition.on_log_start_moved()

    async def _write_log_start(self) -> None:
        """Write that records were deleted, so that it outlives every replica."""
        log_start = self._log.log_start
        if self._manifest.archived_end is not None and log_start > self._manifest.log_start:
            await self._write(LogStartEntry(by=self._author(), log_start=log_start))

    async def _upload(self, source: SegmentToArchive) -> None:
        world, archive = self._world, self._archive
        await world.prepare(archive)
        by = self._author()
        key = archive.keys.segment(
            source.begin, source.end, leader_epoch=self._leader_epoch, token=by.token
        )
        effect = self.machine.begin_upload(key)
        assert isinstance(effect, UploadObject)
        upload = SegmentUpload(world.store, source, offload=world.offload, key=key, pace=world.pace)
        try:
            entry = await upload.run(by)
        except BaseException:
            self.machine.on_failed()
            raise
        self._check()
        await self._carry_out(self.machine.on_uploaded(entry))
        if self._manifest.find(source.begin) == entry:
            world.on_uploaded(entry.log_bytes)
            logger.info(
                "%s: archived offsets %d to %d, %d bytes",
                archive.partition.name,
                entry.base,
                entry.next - 1,
                entry.log_bytes,
            )

    async def _write(self, entry: ManifestEntry) -> None:
        await self._world.prepare(self._archive)
        await self._carry_out(self.machine.begin_entry(entry))

    async def _carry_out(self, effect: Effect | None) -> None:
        machine = self.machine
        while effect is not None:
            # What is under way when a leadership ends does no harm; the manifest is read again before the next.
            self._check()
            if isinstance(effect, CreateEntry):
                effect = await self._create(effect)
            elif isinstance(effect, ReadEntry):
                effect = await self._look(effect)
            else:
                assert not isinstance(effect, UploadObject)
                await asyncio.sleep(effect.delay_ms / 1000)
                effect = machine.retry()
        if machine.is_over:
            logger.info("%s: another leader archives it", self._archive.partition.name)
            raise NotLeading
        self._note_dropped()
        await write_full(self._world.store, self._manifest)

    async def _create(self, effect: CreateEntry) -> Effect | None:
        try:
            outcome: Creation = await self._world.store.create(effect.key, effect.content)
        except ArchiveUnavailable as error:
            self._archive.failure = error
            return self.machine.on_failed()
        self._archive.failure = None
        return self.machine.on_creation(outcome)

    async def _look(self, effect: ReadEntry) -> Effect | None:
        content: bytes | memoryview | None
        try:
            content = await self._world.store.read(effect.key)
        except ObjectMissing:
            content = None
        except ArchiveUnavailable as error:
            self._archive.failure = error
            return self.machine.on_failed()
        try:
            return self.machine.on_read(content)
        except ArchiveCorrupt:
            self.machine.on_broken()
            raise

    def _note_dropped(self) -> None:
        due_ms = self._world.clock.monotonic_ms() + self._world.settings.delete_delay_ms
        self._archive.to_delete.extend((due_ms, key) for key in self._manifest.dropped)
        self._manifest.dropped.clear()

    async def _delete_dropped(self) -> None:
        self._note_dropped()
        waiting, now_ms = self._archive.to_delete, self._world.clock.monotonic_ms()
        while waiting and waiting[0][0] <= now_ms:
            await self._world.store.delete([waiting[0][1]])
            waiting.popleft()

    def _author(self) -> EntryAuthor:
        return EntryAuthor(
            leader_epoch=self._leader_epoch,
            broker=self._world.me,
            token=self._world.rng.uuid().hex,
        )

    @property
    def _log(self) -> PartitionLog:
        return self._archive.partition.log

    def _check(self) -> None:
        if not self.is_current:
            raise NotLeading


def align_log_start(archive: PartitionArchive, manifest: Manifest) -> None:
    """Raise the log start of a replica to where the archive starts: what lies before it was deleted."""
    log = archive.partition.log
    start = manifest.first_offset
    if start is not None and log.log_start < start <= log.log_end:
        logger.info(
            "%s: the log starts at offset %d, as the archive says", archive.partition.name, start
        )
        log.raise_log_start(start)
        archive.partition.on_log_start_moved()
