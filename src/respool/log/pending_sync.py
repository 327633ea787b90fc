"""What of a log is not on the disk yet, and the work that puts it there.

    pending = log.begin_sync()       # in the owner's thread: what is to be synced, up to the log's end now
    pending.run()                    # in any thread, while the log goes on appending
    log.finish_sync(pending)         # in the owner's thread: it is on the disk

`finish_sync` forgets only what that work covered, so a second one may begin before the first is finished; it then does
what the first may not have done.
"""

from collections.abc import Mapping, Sequence

from respool.log.producers.snapshot_files import SnapshotFiles
from respool.log.segment import Segment
from respool.log.segments import LogPoint
from respool.model.errors import DiskFailed, DiskFull, HandlesExhausted, StorageError
from respool.model.ids import Offset
from respool.ports.disk import Disk


class PendingSync:
    """One sync: made by `begin`, done by `run`, reported to `finish`."""

    __slots__ = ("_ledger", "end", "finished", "is_done", "names_version", "snapshots", "written")

    def __init__(
        self,
        ledger: "SyncLedger",
        *,
        end: LogPoint,
        finished: Sequence[Segment],
        snapshots: Mapping[Offset, bytes],
        names_version: int,
    ) -> None:
        self._ledger = ledger
        # Everything before this is on the disk when the work is done.
        self.end = end
        self.finished = finished
        self.snapshots = snapshots
        self.names_version = names_version
        # Which of the snapshots were written.
        self.written: list[Offset] = []
        self.is_done = False

    def belongs_to(self, ledger: "SyncLedger") -> bool:
        return ledger is self._ledger

    def run(self) -> None:
        """Return when all is on the disk. From any thread.

        Raises:
            HandlesExhausted: it was not done, and nothing is lost by that: begin another one later.
            StorageError: some of it may be lost. The log takes no more appends and no more syncs: the pages are gone,
                and another sync that succeeds would prove nothing.
        """
        try:
            self._ledger.put_on_disk(self)
        except HandlesExhausted:
            raise
        except StorageError as error:
            self._ledger.failure = error
            raise
        self.is_done = True


class SyncLedger:
    """Keeps account of what is not on the disk yet, beside the bytes of the last segment."""

    def __init__(self, disk: Disk, folder: str, snapshots: SnapshotFiles) -> None:
        self._disk = disk
        self._folder = folder
        self._files = snapshots
        # Segments that were completed since the last sync, oldest first: their files and indexes.
        self._finished: list[Segment] = []
        # What the producers were where those segments end, by that offset.
        self._snapshots: dict[Offset, bytes] = {}
        # How often names in the folder changed, and how often when they were last synced.
        self._names_version = 0
        self._names_synced = 0
        # Why nothing can be put on the disk any more.
        self.failure: StorageError | None = None
        # The log was cut back since: what is still to be run of this would bring things back.
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
        """A segment is complete; `snapshot` is what the producers are at its end."""
        self._finished.append(segment)
        self._snapshots[end] = snapshot
        # Its indexes' names.
        self._names_version += 1

    def check(self) -> None:
        """Refuse to go on after a failure.

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
        )

    def put_on_disk(self, pending: PendingSync) -> None:
        """In this order: a snapshot says that all before its offset is on the disk, so it comes last."""
        self.check()
        if self.is_abandoned:
            return
        for segment in pending.finished:
            segment.sync_all()
        if pending.end.position:
            pending.end.segment.sync_log()
        if pending.names_version > self._names_synced:
            self._disk.sync_folder(self._folder)
        for offset, content in pending.snapshots.items():
            try:
                self._files.write(offset, content)
            except (DiskFull, HandlesExhausted):
                # It only saves reading headers again. The data is safe, so it must not fail for this.
                return
            pending.written.append(offset)

    def sync_names(self) -> None:
        """Make the folder's names durable now, where something else must not happen before."""
        if self.has_unsynced_names:
            self._disk.sync_folder(self._folder)
            self._names_synced = self._names_version

    def finish(self, pending: PendingSync) -> None:
        """Forget what that work has put on the disk."""
        assert pending.is_done, "a sync that did not run, or failed"
        self._finished = [one for one in self._finished if one not in pending.finished]
        for offset in pending.written:
            self._snapshots.pop(offset, None)
        self._files.on_written(pending.written)
        self._names_synced = max(self._names_synced, pending.names_version)
