"""Opens a log: files of the previous process -> segments, producers, epochs and end offsets.

After a clean stop, no log file is read: the stop wrote a producer snapshot at the log end; if that is the newest
snapshot and equals the recovery point, the log ends there. Otherwise `recovery.py` checks the log.
"""

from collections.abc import Callable
from dataclasses import dataclass

from respool.log.file_names import EPOCHS_NAME
from respool.log.folder_durability import (
    make_folder_durable,
    make_found_folder_durable,
    was_folder_durable,
)
from respool.log.index.segment_indexes import IndexSettings
from respool.log.leader_epochs import EpochCache, EpochFile
from respool.log.partition_folder import advice_on_loss
from respool.log.producers.producer_states import ProducerStates
from respool.log.producers.snapshot_files import SnapshotFiles
from respool.log.recovery.log_folder import LogFolder, delete_segment
from respool.log.recovery.log_walk import epochs_of, replay_batch, replay_producers, walk_log
from respool.log.recovery.recovery import LogRecovery, Recovery
from respool.log.segment import Segment
from respool.log.segments import Segments
from respool.model.errors import SegmentCorrupt
from respool.model.ids import Offset
from respool.ports.disk import Disk


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedLog:
    segments: Segments
    snapshots: SnapshotFiles
    producers: ProducerStates
    epochs: EpochCache
    log_start: Offset
    log_end: Offset
    # What crash recovery repaired; None after a clean stop.
    recovery: Recovery | None
    # Creates the folder of a log that has none yet.
    create_folder: Callable[[], None] | None = None


class LogLoader:
    """Loads one log, once."""

    def __init__(
        self,
        *,
        disk: Disk,
        folder: str,
        settings: IndexSettings,
        now_ms: int,
        producer_expiration_ms: int,
        may_have_gaps: bool = False,
        is_replicated: bool = False,
        is_archived: bool = False,
        create_folder: Callable[[], None] | None = None,
    ) -> None:
        """A log that may have been compacted may have gaps; a replica of one may have gaps up to its end.

        The first segments of one that is archived may be in the archive only.

        With `create_folder`, there is no folder yet, and the first append calls it.
        """
        self._disk = disk
        self._folder = folder
        self._settings = settings
        self._now_ms = now_ms
        self._expiration_ms = producer_expiration_ms
        self._may_have_gaps = may_have_gaps
        self._is_replicated = is_replicated
        self._is_archived = is_archived
        found = (
            LogFolder(segments=[], snapshots=SnapshotFiles(disk, folder, ()))
            if create_folder is not None
            else LogFolder.open(disk, folder, settings, now_ms=now_ms)
        )
        self._create_folder = create_folder
        # Oldest first; none is opened yet.
        self._segments = found.segments
        self._snapshots = found.snapshots

    def load(
        self,
        *,
        log_start: Offset,
        recovery_point: Offset,
        clean: bool,
        high_watermark: Offset | None = None,
    ) -> LoadedLog:
        """Determine what the log contains; after a crash, recover and sync it.

        Everything before the high watermark is committed; without one, everything.

        Raises:
            SegmentCorrupt: data that was durable is damaged or missing.
        """
        loaded = self._load(log_start=log_start, recovery_point=recovery_point, clean=clean)
        if high_watermark is not None and high_watermark < loaded.log_end:
            ended = find_uncommitted_markers(
                loaded.segments,
                loaded.snapshots,
                high_watermark=high_watermark,
                log_end=loaded.log_end,
                expiration_ms=self._expiration_ms,
            )
            loaded.producers.transactions.restore_ended(ended)
        return loaded

    def _load(self, *, log_start: Offset, recovery_point: Offset, clean: bool) -> LoadedLog:
        # A snapshot is written only after everything before its offset is durable.
        synced_end = max(recovery_point, self._snapshots.newest)
        if not self._segments:
            return self._begin(log_start, synced_end)
        if not self._is_archived:
            log_start = max(log_start, self._segments[0].base_offset)
        log_end = self._clean_end(recovery_point) if clean else None
        loaded = (
            self._load_clean(log_start, log_end)
            if log_end is not None
            else self._recover(log_start, synced_end)
        )
        if loaded.log_end < synced_end and synced_end > log_start:
            raise SegmentCorrupt(
                f"{self._folder} ends at offset {loaded.log_end}, but it was synced up to {synced_end}; "
                f"{advice_on_loss(self._folder)}"
            )
        if loaded.log_end < log_start:
            # A power cut removed records that had been deleted: the log continues at its checkpointed start.
            return self._begin_again(loaded.segments, log_start)
        return loaded

    def _begin(self, log_start: Offset, synced_end: Offset) -> LoadedLog:
        """Create a log where there is none."""
        if synced_end > log_start:
            raise SegmentCorrupt(
                f"{self._folder} has no segment, but it was synced up to offset {synced_end}; "
                f"{advice_on_loss(self._folder)}"
            )
        segment = Segment(
            self._disk, self._folder, log_start, self._settings, size=0, now_ms=self._now_ms
        )
        if self._create_folder is None:
            self._disk.make_folder(self._folder)
            # Snapshots may remain of a log that was being removed when the power failed.
            self._disk.delete(f"{self._folder}/{EPOCHS_NAME}")
            segment.create_file()
            make_folder_durable(self._disk, self._folder)
        return LoadedLog(
            segments=Segments([segment]),
            snapshots=self._snapshots,
            producers=self._no_producers(),
            epochs=EpochCache(),
            log_start=log_start,
            log_end=log_start,
            recovery=None,
            create_folder=self._create_folder,
        )

    def _no_producers(self) -> ProducerStates:
        producers = ProducerStates(expiration_ms=self._expiration_ms)
        # Provides the time. Otherwise a first snapshot would have record timestamps only, and producers of old records
        # would be forgotten at the next start.
        producers.expire(self._now_ms)
        return producers

    def _begin_again(self, segments: Segments, log_start: Offset) -> LoadedLog:
        self._snapshots.delete_beyond(Offset(-1))
        for segment in reversed(segments.all):
            delete_segment(self._disk, self._folder, segment)
        return self._begin(log_start, Offset(-1))

    def _clean_end(self, recovery_point: Offset) -> Offset | None:
        """The log end after a clean stop; None if it was not clean after all."""
        last = self._segments[-1]
        newest = self._snapshots.newest
        # A non-empty segment ends after its base offset. (Its exact end is checked at the first append.)
        could_end = newest > last.base_offset if last.size else newest == last.base_offset
        if newest == recovery_point and could_end:
            return newest
        try:
            return last.next_offset()
        except SegmentCorrupt:
            return None

    def _load_clean(self, log_start: Offset, log_end: Offset) -> LoadedLog:
        segments = Segments(self._segments)
        replay_from, producers = self._snapshots.load(
            at_most=log_end, expiration_ms=self._expiration_ms
        )
        replay_producers(producers, segments, replay_from, log_end)
        epochs = EpochFile.read(self._disk, self._folder)
        if epochs is None:
            epochs = epochs_of(segments, log_start, log_end)
        self._tidy(segments, producers, epochs, log_start=log_start, log_end=log_end)
        return LoadedLog(
            segments=segments,
            snapshots=self._snapshots,
            producers=producers,
            epochs=epochs,
            log_start=log_start,
            log_end=log_end,
            recovery=None,
        )

    def _recover(self, log_start: Offset, synced_end: Offset) -> LoadedLog:
        recovery = LogRecovery(
            disk=self._disk,
            folder=self._folder,
            settings=self._settings,
            snapshots=self._snapshots,
            producer_expiration_ms=self._expiration_ms,
            may_have_gaps=self._may_have_gaps,
            is_replicated=self._is_replicated,
        )
        done = recovery.run(Segments(self._segments), log_start=log_start, synced_end=synced_end)
        segments, producers, epochs = recovery.segments, recovery.producers, recovery.epochs
        self._tidy(segments, producers, epochs, log_start=log_start, log_end=done.log_end)
        if not was_folder_durable(self._disk, self._folder):
            # The previous process ended before the log's first sync.
            make_found_folder_durable(self._disk, self._folder)
        recovery.make_durable()
        return LoadedLog(
            segments=segments,
            snapshots=self._snapshots,
            producers=producers,
            epochs=epochs,
            log_start=log_start,
            log_end=done.log_end,
            recovery=done,
        )

    def _tidy(
        self,
        segments: Segments,
        producers: ProducerStates,
        epochs: EpochCache,
        *,
        log_start: Offset,
        log_end: Offset,
    ) -> None:
        """Bring all derived state in line with the log's start and end."""
        # An epoch may start at the log end, before it has data, but not beyond it.
        epochs.truncate_end(Offset(log_end + 1))
        epochs.truncate_start(log_start)
        producers.forget_before(log_start)
        producers.expire(self._now_ms)
        self._snapshots.delete_strays([segment.base_offset for segment in segments.all])


def find_uncommitted_markers(
    segments: Segments,
    snapshots: SnapshotFiles,
    *,
    high_watermark: Offset,
    log_end: Offset,
    expiration_ms: int,
) -> list[tuple[Offset, Offset]]:
    """Return first offset and marker offset of the ended transactions whose markers are not committed.

    Another leader may still remove a marker at or after the high watermark. Until it is committed, its transaction
    holds back the last stable offset like an open one (open_transactions.py). The transaction's first offset is only
    known from before the marker. So if there are such markers, producers are replayed from a snapshot at or before the
    high watermark; usually there are none, and the last headers are all that is read.
    """
    tail = walk_log(segments, high_watermark, log_end)
    if not any(batch.header.is_control for _, batch in tail):
        return []
    replay_from, producers = snapshots.load(at_most=high_watermark, expiration_ms=expiration_ms)
    replay_producers(producers, segments, replay_from, high_watermark)
    for segment, batch in walk_log(segments, high_watermark, log_end):
        replay_batch(producers, segment, batch, high_watermark=high_watermark)
    return producers.transactions.markers_before(log_end)
