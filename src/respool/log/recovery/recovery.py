"""Making a log whole after a crash: every batch is checked from where the synced part ends, and the rest is cut off.

What may be cut, and what must not be:

- All below `synced_end` was on the disk once. That is the recovery point from the checkpoint, or the newest snapshot's
  offset, for a snapshot is written only after all before it was synced.
- Beyond it, a power cut leaves any subset of the sectors that were written: so a bad batch there is what a torn write
  looks like, and sound batches behind a bad one prove nothing. Batches there may have been synced and acknowledged
  too, after the last checkpoint; but then they are whole, and so is everything before them. Cutting at the *first* bad
  batch therefore loses nothing that was acknowledged.
- Below it, a bad batch or a missing one is damage that no crash explains: a decayed disk, a deleted file. Cutting there
  would throw away acknowledged records that lie behind it, and readers of this log may have seen them. So nothing
  is cut: `SegmentCorrupt`, the partition stays offline, and the operator decides (restore a copy, or lower the
  recovery point and lose what comes after).

One doubt remains. A sector that decays between the last checkpoint and a crash, in the segment being written, looks
like a torn write, and what comes after it is cut. The checkpoint's interval bounds that.

The scan begins with the segment that holds the last synced offset, at its beginning: its indexes were never synced, or
only as far as they were when it was still being written. Those of all segments before it were synced with them,
before any later offset counted as synced.

Every file that was scanned is synced: what `kill -9` left in memory counts as synced only then.

Which transactions were aborted is found again too, by replaying producers from a snapshot at or before the first
segment scanned: its `.txnindex` was never synced as a whole either.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from respool.log.batch_walk import BatchAt
from respool.log.index.segment_indexes import IndexSettings, SegmentIndexes
from respool.log.index.transaction_index import AbortedTransaction
from respool.log.leader_epochs import EpochEntry, EpochFile
from respool.log.partition_folder import what_to_do_about_loss
from respool.log.producers.producer_states import ProducerStates
from respool.log.producers.snapshot_files import SnapshotFiles
from respool.log.recovery.log_folder import delete_segment
from respool.log.recovery.log_walk import epochs_of, replay_batch, replay_producers
from respool.log.recovery.segment_scan import SegmentScan
from respool.log.segment import Segment
from respool.log.segments import Segments
from respool.model.errors import SegmentCorrupt
from respool.model.ids import NO_TIMESTAMP, Offset
from respool.ports.disk import Disk
from respool.records.batch import BatchHeader

OFFSET_MAX = Offset(2**63 - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What a recovery did, for the operator."""

    scanned_from: Offset
    log_end: Offset
    bytes_cut: int
    # Why they were cut; empty when nothing was.
    damage: str


class LogRecovery:
    """Recovers one log, once: `run`, then `put_on_disk`."""

    def __init__(
        self,
        *,
        disk: Disk,
        folder: str,
        settings: IndexSettings,
        snapshots: SnapshotFiles,
        producer_expiration_ms: int,
        may_have_gaps: bool,
        is_replicated: bool = False,
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._settings = settings
        self._snapshots = snapshots
        self._expiration_ms = producer_expiration_ms
        self._may_have_gaps = may_have_gaps
        self._is_replicated = is_replicated
        self._scanned: list[Segment] = []
        self._log_end = Offset(0)
        # Where the batch that was replayed last ends.
        self._replayed_end = Offset(0)
        self._written_down: list[EpochEntry] = []

    def run(self, listed: Segments, *, log_start: Offset, synced_end: Offset) -> Recovery:
        """Find what is whole and cut off the rest.

        Raises:
            SegmentCorrupt: that would be something below `synced_end`; nothing was cut.
        """
        first = max(listed.index_of(Offset(synced_end - 1)), 0)
        scan_from = listed.all[first].base_offset
        for index, segment in enumerate(listed.all[:first]):
            end = listed.end_of(index, log_end=scan_from)
            if not segment.size and end > log_start:
                raise SegmentCorrupt(
                    f"{segment.path} is empty, it had offsets up to {end}; "
                    f"{what_to_do_about_loss(self._folder)}"
                )
        self._replay_from, self.producers = self._snapshots.load(
            at_most=synced_end, expiration_ms=self._expiration_ms
        )
        replay_producers(self.producers, listed, self._replay_from, scan_from)
        self._earlier = self._producers_at(listed, scan_from)
        written_down = self._load_epochs(listed, log_start, scan_from)

        bytes_before = listed.size_bytes
        damage = self._scan_all(listed.all[first:], scan_from, self._gaps_end(listed, synced_end))
        # What lies below the log's start was deleted: its loss is none.
        if damage and self._log_end < synced_end and synced_end > log_start:
            raise SegmentCorrupt(
                f"{damage}; everything before offset {synced_end} was on the disk; "
                f"{what_to_do_about_loss(self._folder)}"
            )
        self._cut(listed.all[first + len(self._scanned) :])
        self.segments = Segments([*listed.all[:first], *self._scanned])
        for entry in written_down:
            if entry.start_offset == self._log_end:
                self.epochs.assign(*entry)
        return Recovery(
            scanned_from=scan_from,
            log_end=self._log_end,
            bytes_cut=bytes_before - self.segments.size_bytes,
            damage=damage,
        )

    def put_on_disk(self) -> None:
        """Sync what was found, so that it may be built on."""
        for segment in self._scanned:
            segment.sync_all()
        self._disk.sync_folder(self._folder)
        EpochFile(self._disk, self._folder, self.epochs).write()
        # Last, for it says that all before is on the disk.
        self._snapshots.write(self._log_end, self.producers.encode_snapshot())
        self._snapshots.on_written([self._log_end])

    def _gaps_end(self, listed: Segments, synced_end: Offset) -> Offset | None:
        """Below which offset some may be missing; None when none may."""
        if self._is_replicated:
            # A leader's gaps are written here like its batches, anywhere. What was synced behind one was acknowledged,
            # so it must not be taken for torn. One doubt remains: a write torn within the first eight bytes of a batch
            # behind a gap may show an offset that lies in the gap. The batch is then one that nobody was promised.
            return OFFSET_MAX
        # Compaction takes only what is on the disk, and never of the last segment.
        return max(synced_end, listed.active.base_offset) if self._may_have_gaps else None

    def _producers_at(self, listed: Segments, scan_from: Offset) -> ProducerStates:
        """The producers where the scan begins, for the transactions that end between there and the snapshot in use."""
        if self._replay_from <= scan_from:
            return self.producers
        replay_from, earlier = self._snapshots.load(
            at_most=scan_from, expiration_ms=self._expiration_ms
        )
        replay_producers(earlier, listed, replay_from, scan_from)
        return earlier

    def _load_epochs(
        self, listed: Segments, log_start: Offset, scan_from: Offset
    ) -> list[EpochEntry]:
        """Know the epochs up to where the scan begins; return all that were written down.

        One that has no data is in no header: it is put back where the log ends just where it begins.
        """
        found = EpochFile.read(self._disk, self._folder)
        written_down = found.entries if found is not None else []
        # The log's start may be back where it was before: then the first epochs were forgotten already.
        known_from = written_down[0].start_offset if written_down else scan_from
        self.epochs = epochs_of(listed, log_start, min(known_from, scan_from))
        for entry in written_down:
            self.epochs.assign(*entry)
        self.epochs.truncate_end(scan_from)
        self._written_down = written_down
        return written_down

    def _scan_all(
        self, segments: Sequence[Segment], scan_from: Offset, gaps_end: Offset | None
    ) -> str:
        """Take in what is sound, and say what is wrong with what follows it."""
        self._log_end = self._replayed_end = scan_from
        for segment in segments:
            if segment.base_offset != self._log_end:
                return f"offset {self._log_end} is missing before segment {segment.base_offset}"
            # Believe the disk and not the memory: pages that an earlier process failed to sync lie there as if
            # all were well, and no later sync would write them.
            file = segment.take_file()
            file.sync()
            file.forget_cached()
            scan = SegmentScan(file, segment.base_offset, gaps_end=gaps_end)
            self._scan(segment, scan)
            self._scanned.append(segment)
            self._log_end = scan.next_offset
            if scan.damage:
                at = f"{segment.path} at byte {scan.position}, offset {scan.next_offset}"
                return f"{at}: {scan.damage}"
        return ""

    def _scan(self, segment: Segment, scan: SegmentScan) -> None:
        indexes = SegmentIndexes.create(
            self._disk, self._folder, segment.base_offset, self._settings
        )
        first_timestamp = NO_TIMESTAMP
        aborted: list[AbortedTransaction] = []
        for position, header in scan:
            if not position:
                first_timestamp = header.max_timestamp
            indexes.make_room(position)
            indexes.add(position, header.last_offset, header.latest_timestamp)
            ended = self._replay(segment, BatchAt(position, header))
            if ended is not None:
                aborted.append(ended)
        segment.aborted.replace(aborted)
        segment.adopt(indexes, first_timestamp=first_timestamp, size=scan.position)

    def _replay(self, segment: Segment, batch: BatchAt) -> AbortedTransaction | None:
        header = batch.header
        if header.leader_epoch > self.epochs.latest:
            self._enter_epochs(header)
        self._replayed_end = header.next_offset
        is_known = header.base_offset < self._replay_from
        return replay_batch(self._earlier if is_known else self.producers, segment, batch)

    def _enter_epochs(self, header: BatchHeader) -> None:
        """Enter this batch's epoch, and those that compaction left nothing of before it, as far as was written down.

        If nothing was, all that is missing may be of this batch's epoch.
        """
        for entry in self._written_down:
            is_missing = self._replayed_end <= entry.start_offset <= header.base_offset
            if is_missing and self.epochs.latest < entry.epoch <= header.leader_epoch:
                self.epochs.assign(*entry)
        if header.leader_epoch > self.epochs.latest:
            self.epochs.assign(header.leader_epoch, self._replayed_end)

    def _cut(self, dropped: Sequence[Segment]) -> None:
        # The newest first, so that a crash meanwhile leaves no gap.
        for segment in reversed(dropped):
            delete_segment(self._disk, self._folder, segment)
        for segment in self._scanned:
            if segment.file.size != segment.size:
                segment.file.truncate(segment.size)
        for segment in self._scanned[:-1]:
            segment.finish()
