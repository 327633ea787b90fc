"""Tracks which parts of a log are not durable yet, and syncs them.

    pending = log.begin_sync()       # in the owner's thread: what to sync, up to the current log end
    pending.run()                    # in any thread, while the log appends
    log.finish_sync(pending)         # in the owner's thread: it is durable

`finish_sync` clears only what this sync covered. So a second sync may begin before the first is finished; it repeats
what the first may not have done.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from respool.log.folder_durability import make_folder_durable
from respool.log.leader_epochs import EpochFile
from respool.log.producers.snapshot_files import SnapshotFiles
from respool.log.segment import Segment
from respool.log.segments import LogPoint
from respool.model.errors import DiskFailed, DiskFull, HandlesExhausted, StorageError
from respool.model.ids import Offset
from respool.ports.disk import Disk


class PendingSync:
    """One sync: created by `begin`, executed by `run`, reported to `finish`."""

    __slots__ = (
        "_ledger",
        "end",
        "finished",
        "first_epochs",
        "is_done",
        "names_version",
        "snapshots",
        "written",
    )

    def __init__(
        self,
        ledger: "SyncLedger",
        *,
        end: LogPoint,
        finished: Sequence[Segment],
        snapshots: Mapping[Offset, bytes],
        names_version: int,
        first_epochs: bytes | None,
    ) -> None:
        self._ledger = ledger
        # Everything before this is durable when the sync has run.
        self.end = end
        self.finished = finished
        self.snapshots = snapshots
        self.names_version = names_version
        # For the first sync of a new log: the content of the epoch file. None: the log's folder is durable.
        self.first_epochs = first_epochs
        # The offsets of the snapshots that were written.
        self.written: list[Offset] = []
        self.is_done = False

    def belongs_to(self, ledger: "SyncLedger") -> bool:
        return ledger is self._ledger

    def run(self) -> None:
        """Sync everything. Runs in any thread.

        Raises:
            HandlesExhausted: nothing was done and nothing is lost; begin another sync later.
            StorageError: data may be lost. The log accepts no more appends or syncs: the dirty pages are gone, so a
                later successful sync would prove nothing.
        """
        self._ledger.make_names_durable_first(self)
        try:
            self._ledger.make_durable(self)
        except HandlesExhausted:
            raise
        except StorageError as error:
            self._ledger.failure = error
            raise
        self.is_done = True


class SyncLedger:
    """Tracks what is not durable yet, apart from the bytes of the active segment."""

    def __init__(
        self, disk: Disk, folder: str, snapshots: SnapshotFiles, epochs: EpochFile
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._files = snapshots
        self._epochs = epochs
        # Segments finished since the last sync, oldest first: their files and indexes.
        self._finished: list[Segment] = []
        # Producer snapshots at the ends of those segments, by offset.
        self._snapshots: dict[Offset, bytes] = {}
        # Counts renames and new files in the folder, and the count at the last folder sync.
        self._names_version = 0
        self._names_synced = 0
        # The error after which nothing can be synced any more.
        self.failure: StorageError | None = None
        # The log was truncated since: a pending run must not restore anything.
        self.is_abandoned = False

    @property
    def has_unsynced_names(self) -> bool:
        return self._names_version != self._names_synced

    @property
    def is_empty(self) -> bool:
        return not self._finished and not self._snapshots and not self.has_unsynced_names

    @property
    def finished(self) -> Sequence[Segment]:
        return tuple(self._finished)

    def on_names_changed(self) -> None:
        self._names_version += 1

    def on_finished(self, segment: Segment, *, end: Offset, snapshot: bytes) -> None:
        """A segment is finished; `snapshot` is the producer state at its end."""
        self._finished.append(segment)
        self._snapshots[end] = snapshot
        # The indexes have new file names.
        self._names_version += 1

    def check(self) -> None:
        """Raise the error of an earlier failed sync.

        Raises:
            DiskFailed: an earlier sync failed.
        """
        if self.failure is not None:
            raise DiskFailed(f"{self._folder}: an earlier sync failed: {self.failure}")

    def begin(self, end: LogPoint, *, with_snapshots: bool = True) -> PendingSync:
        self.check()
        return PendingSync(
            self,
            end=end,
            finished=tuple(self._finished),
            snapshots=dict(self._snapshots) if with_snapshots else {},
            names_version=self._names_version,
            first_epochs=None if self._epochs.is_on_disk else self._epochs.encode(),
        )

    def make_names_durable_first(self, pending: PendingSync) -> None:
        """For the first sync of a new log: before its records, since these must not be durable without their folder.

        Raises:
            HandlesExhausted: no record was touched, so nothing is lost.
        """
        if pending.first_epochs is None or self._epochs.is_on_disk:
            return
        if self.is_abandoned or self.failure is not None:
            return
        try:
            make_folder_durable(self._disk, self._folder)
            with suppress(DiskFull):
                # The batches' headers have the same epochs.
                self._epochs.write_first(pending.first_epochs)
        except HandlesExhausted:
            raise
        except StorageError as error:
            self.failure = error
            raise

    def make_durable(self, pending: PendingSync) -> None:
        """In this order: a snapshot implies that everything before its offset is durable, so it is written last."""
        self.check()
        if self.is_abandoned:
            return
        for segment in pending.finished:
            segment.sync_all()
        if pending.end.position:
            pending.end.segment.sync_log()
        # The first sync of a new log has begun with all names.
        if pending.names_version > self._names_synced and pending.first_epochs is None:
            self._disk.sync_folder(self._folder)
        for offset, content in pending.snapshots.items():
            try:
                self._files.write(offset, content)
            except (DiskFull, HandlesExhausted):
                # A snapshot only saves recovery work. The data is durable, so this must not fail.
                return
            pending.written.append(offset)

    def sync_names(self) -> None:
        """Make file names durable now, for operations that depend on it."""
        assert self._epochs.is_on_disk, f"{self._folder}: a new log needs a whole sync"
        if self.has_unsynced_names:
            self._disk.sync_folder(self._folder)
            self._names_synced = self._names_version

    def make_folder_durable(self) -> None:
        """Make the folder of a new log durable now, before it is truncated. No sync is running."""
        if not self._epochs.is_on_disk:
            make_folder_durable(self._disk, self._folder)
            self._epochs.is_on_disk = True
            self._epochs.write()
            self._names_synced = self._names_version

    def finish(self, pending: PendingSync) -> None:
        """Clear what this sync made durable."""
        assert pending.is_done, "the sync did not run, or failed"
        if pending.first_epochs is not None:
            self._epochs.on_written(pending.first_epochs)
            if not self._epochs.is_on_disk:
                # So that another sync follows, which writes the newer epoch.
                self._names_version += 1
        self._finished = [one for one in self._finished if one not in pending.finished]
        for offset in pending.written:
            self._snapshots.pop(offset, None)
        self._files.on_written(pending.written)
        self._names_synced = max(self._names_synced, pending.names_version)
