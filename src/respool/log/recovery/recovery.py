"""Recovers a log after a crash: validates every batch from the synced part's end on, and truncates at the first bad
one.

What may be truncated, and what must not be:

- Everything below `synced_end` was durable once. That is the checkpointed recovery point, or the newest snapshot's
  offset, since a snapshot is written only after everything before it was synced.
- Above it, a power cut may leave any subset of the written sectors: a bad batch there is a torn write, and valid
  batches after it prove nothing. Batches there may have been synced and acknowledged after the last checkpoint; but
  then they are intact, and so is everything before them. So truncating at the *first* bad batch loses nothing that was
  acknowledged.
- Below it, a bad or missing batch is damage that no crash explains: a failing disk, a deleted file. Truncating there
  would drop acknowledged records after it, which consumers may have read. So nothing is truncated: `SegmentCorrupt`,
  the partition stays offline, and the operator decides (restore a copy, or accept the loss of what follows).

One gap remains. A sector of the active segment that decays between the last checkpoint and a crash looks like a torn
write, and everything after it is truncated. The checkpoint interval bounds that.

The scan starts at the beginning of the segment that contains the last synced offset: its indexes were never synced
completely. The indexes of all earlier segments were synced with them, before any later offset counted as synced.

Every scanned file is synced: data that `kill -9` left in the page cache counts as synced only then.

The transaction index of the scanned segments was never synced completely either: it is rebuilt by replaying producers
from a snapshot at or before the first scanned segment.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from respool.log.batch_walk import BatchAt
from respool.log.index.segment_indexes import IndexSettings, SegmentIndexes
from respool.log.index.transaction_index import AbortedTransaction
from respool.log.leader_epochs import EpochEntry, EpochFile
from respool.log.partition_folder import advice_on_loss
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
    bytes_truncated: int
    # Why they were truncated; empty if nothing was.
    damage: str


class LogRecovery:
    """Recovers one log, once: `run`, then `make_durable`."""

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
        # The end of the last replayed batch.
        self._replayed_end = Offset(0)
        self._written_down: list[EpochEntry] = []

    def run(self, listed: Segments, *, log_start: Offset, synced_end: Offset) -> Recovery:
        """Find the valid part and truncate the rest.

        Raises:
            SegmentCorrupt: it would truncate below `synced_end`; nothing was truncated.
        """
        first = max(listed.index_of(Offset(synced_end - 1)), 0)
        scan_from = listed.all[first].base_offset
        for index, segment in enumerate(listed.all[:first]):
            end = listed.end_of(index, log_end=scan_from)
            if not segment.size and end > log_start:
                raise SegmentCorrupt(
                    f"{segment.path} is empty, it contained offsets up to {end}; "
                    f"{advice_on_loss(self._folder)}"
                )
        self._replay_from, self.producers = self._snapshots.load(
            at_most=synced_end, expiration_ms=self._expiration_ms
        )
        replay_producers(self.producers, listed, self._replay_from, scan_from)
        self._earlier = self._producers_at(listed, scan_from)
        written_down = self._load_epochs(listed, log_start, scan_from)

        bytes_before = listed.size_bytes
        damage = self._scan_all(listed.all[first:], scan_from, self._gaps_end(listed, synced_end))
        # Data below the log start was deleted: losing it is no loss.
        if damage and self._log_end < synced_end and synced_end > log_start:
            raise SegmentCorrupt(
                f"{damage}; everything before offset {synced_end} had been synced; "
                f"{advice_on_loss(self._folder)}"
            )
        self._truncate(listed.all[first + len(self._scanned) :])
        self.segments = Segments([*listed.all[:first], *self._scanned])
        for entry in written_down:
            if entry.start_offset == self._log_end:
                self.epochs.assign(*entry)
        return Recovery(
            scanned_from=scan_from,
            log_end=self._log_end,
            bytes_truncated=bytes_before - self.segments.size_bytes,
            damage=damage,
        )

    def make_durable(self) -> None:
        """Sync the recovered state."""
        for segment in self._scanned:
            segment.sync_all()
        self._disk.sync_folder(self._folder)
        EpochFile(self._disk, self._folder, self.epochs).write()
        # Last, because it implies that everything before is durable.
        self._snapshots.write(self._log_end, self.producers.encode_snapshot())
        self._snapshots.on_written([self._log_end])

    def _gaps_end(self, listed: Segments, synced_end: Offset) -> Offset | None:
        """The offset below which records may be missing; None if none may."""
        if self._is_replicated:
            # A replica has its leader's gaps anywhere. A synced batch after a gap may be acknowledged, so it must not
            # count as torn. One gap in this reasoning: a write torn within the first eight bytes of a batch after a gap
            # may show an offset inside the gap. That batch was never acknowledged.
            return OFFSET_MAX
        # Compaction uses only durable segments, and never the last one.
        return max(synced_end, listed.active.base_offset) if self._may_have_gaps else None

    def _producers_at(self, listed: Segments, scan_from: Offset) -> ProducerStates:
        """The producers at the start of the scan, for transactions that end between there and the snapshot in use."""
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
        """Load the epochs up to the start of the scan; return all stored ones.

        An epoch without data is in no header: it is restored if the log ends exactly where it starts.
        """
        found = EpochFile.read(self._disk, self._folder)
        written_down = found.entries if found is not None else []
        # The checkpointed log start may be an older value: then the first epochs have been removed already.
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
        """Accept valid batches; return what is wrong with the data after them."""
        self._log_end = self._replayed_end = scan_from
        for segment in segments:
            if segment.base_offset != self._log_end:
                return f"offset {self._log_end} is missing before segment {segment.base_offset}"
            # Trust the disk, not the page cache: pages that an earlier process failed to sync look valid in it, and no
            # later sync would write them.
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
        """Enter the batch's epoch, and earlier stored epochs of which compaction left no batch.

        If none was stored, everything missing may be of this batch's epoch.
        """
        for entry in self._written_down:
            is_missing = self._replayed_end <= entry.start_offset <= header.base_offset
            if is_missing and self.epochs.latest < entry.epoch <= header.leader_epoch:
                self.epochs.assign(*entry)
        if header.leader_epoch > self.epochs.latest:
            self.epochs.assign(header.leader_epoch, self._replayed_end)

    def _truncate(self, dropped: Sequence[Segment]) -> None:
        # Newest first, so that a crash leaves no gap.
        for segment in reversed(dropped):
            delete_segment(self._disk, self._folder, segment)
        for segment in self._scanned:
            if segment.file.size != segment.size:
                segment.file.truncate(segment.size)
        for segment in self._scanned[:-1]:
            segment.finish()
