"""A piece of the log: one `.log` file with its two indexes, all named by its base offset.

Only the last segment of a log is written to; the others never change again until they are removed as a whole. Nothing
is opened before it is needed, and what was not needed for a while is let go of: so neither a start nor the number of
open files grows with what lies on the disk.

The owner's thread writes; others may read meanwhile. They see `size` grow only after the bytes and the index entries
are there.
"""

from collections.abc import Iterator, Sequence

from respool.log.batch_walk import BatchAt, walk_headers
from respool.log.file_names import LOG, TRANSACTION_INDEX, offset_name
from respool.log.index.index_source import IndexSource, walk_indexed
from respool.log.index.segment_indexes import IndexSettings, SegmentIndexes
from respool.log.index.time_index import TimeEntry
from respool.log.index.transaction_index import ENTRY_BYTES, AbortedTransaction, TransactionIndex
from respool.log.shared_file import SharedFile
from respool.model.errors import SegmentCorrupt, StorageError
from respool.model.ids import NO_TIMESTAMP, Offset
from respool.ports.disk import Disk, LogFile
from respool.records.batch import BatchHeader, RecordBatch


class Segment:
    __slots__ = (
        "_file",
        "_index_source",
        "_indexes",
        "_is_used",
        "_largest",
        "_read_indexes",
        "aborted",
        "base_offset",
        "created_ms",
        "first_timestamp",
        "is_writable",
        "size",
        "touched_ms",
    )

    def __init__(
        self,
        disk: Disk,
        folder: str,
        base_offset: Offset,
        settings: IndexSettings,
        *,
        size: int,
        now_ms: int,
        aborted_bytes: int = 0,
    ) -> None:
        """`size` and `aborted_bytes` are what the log file and the index of aborted transactions have."""
        self._index_source = IndexSource(disk, folder, base_offset, settings)
        self._file = SharedFile(disk, f"{folder}/{offset_name(base_offset, LOG)}")
        # The owner's, since it began to write; readers use them too.
        self._indexes: SegmentIndexes | None = None
        # What readers opened, while the owner had not.
        self._read_indexes: SegmentIndexes | None = None
        # Whether anything was looked up since `release_if_idle` asked last.
        self._is_used = False
        # The largest timestamp, where only that was asked for.
        self._largest: TimeEntry | None = None
        # The aborted transactions whose markers lie here.
        self.aborted = TransactionIndex(
            disk,
            f"{folder}/{offset_name(base_offset, TRANSACTION_INDEX)}",
            count=aborted_bytes // ENTRY_BYTES,
        )
        self.base_offset = base_offset
        # Bytes of whole batches in the file. A reader takes it before it takes the file: then the
        # file is at least that long.
        self.size = size
        # Whether `append` may be called. Invariant: then the owner's indexes know every batch.
        self.is_writable = False
        # The largest timestamp of the first batch: the segment's age counts from there. Known while
        # the segment is writable; NO_TIMESTAMP when it is empty or that batch has none.
        self.first_timestamp = NO_TIMESTAMP
        # When this process began the segment, or found it at its start.
        self.created_ms = now_ms
        # When it was last appended to; for what an earlier process appended, not before that.
        self.touched_ms = now_ms

    @classmethod
    def create(
        cls, disk: Disk, folder: str, base_offset: Offset, settings: IndexSettings, *, now_ms: int
    ) -> "Segment":
        """Begin an empty segment. Its name is durable when the folder is synced.

        Raises:
            DiskFull: there is no room for it.
        """
        segment = cls(disk, folder, base_offset, settings, size=0, now_ms=now_ms)
        segment._own_file(create=True)
        return segment

    @property
    def path(self) -> str:
        return self._file.path

    @property
    def is_open(self) -> bool:
        """Whether it holds on to any file."""
        indexes = self._indexes or self._read_indexes
        return self._file.is_open or indexes is not None

    @property
    def has_indexes_open(self) -> bool:
        return (self._indexes or self._read_indexes) is not None

    @property
    def largest(self) -> TimeEntry:
        """The largest timestamp, -1 for none, and the last offset of the first batch that has it."""
        indexes = self._indexes or self._read_indexes
        if indexes is not None:
            return indexes.largest
        if self._largest is None:
            # Without keeping an index open: retention asks every partition for it.
            if self.size:
                self._largest = self._index_source.read_largest() or self.indexes().largest
            else:
                self._largest = TimeEntry(NO_TIMESTAMP, self.base_offset)
        return self._largest

    @property
    def retention_timestamp(self) -> int:
        """What retention goes by: the largest timestamp of the records.

        Where no record has one, Kafka goes by the file's time. We go by the last append we know of, which is never
        before it: the segment is kept for longer after a restart, and never too short.
        """
        timestamp = self.largest.timestamp
        return timestamp if timestamp >= 0 else self.touched_ms

    # -- writing -----------------------------------------------------------------------------------------------------

    def make_writable(self, *, log_end: Offset) -> None:
        """Get ready for appending behind `log_end`.

        Raises:
            SegmentCorrupt: the file does not end there.
            DiskFull: the indexes cannot be given room.
        """
        file = self._own_file()
        if self.size:
            indexes = self._index_source.own(file, self.size)
            end, largest = self._index_source.walk_tail(indexes, file, self.size)
            if end != log_end:
                raise SegmentCorrupt(f"{self.path} ends at offset {end}, expected {log_end}")
            if largest.timestamp > indexes.largest.timestamp:
                indexes.largest = largest
            indexes.save()
            indexes.make_writable()
            first = next(walk_headers(file, 0, self.size))
            self.first_timestamp = first.header.max_timestamp
        else:
            assert self.base_offset == log_end
            indexes = self._index_source.create()
            self.first_timestamp = NO_TIMESTAMP
        self._indexes = indexes
        self.is_writable = True

    def append(
        self,
        buffers: Sequence[bytes | bytearray | memoryview],
        *,
        size: int,
        last_offset: Offset,
        max_timestamp: int,
        now_ms: int,
        aborted: AbortedTransaction | None = None,
    ) -> None:
        """Write one batch of `size` bytes at the end; it may be the marker of a transaction that is aborted.

        Raises:
            DiskFull, DiskFailed: nothing was written.
        """
        indexes, file = self._indexes, self._file.owned
        assert indexes is not None
        assert file is not None
        position = self.size
        indexes.make_room(position)
        if aborted is None:
            file.append(buffers)
        else:
            self._append_abort(file, buffers, aborted)
        indexes.add(position, last_offset, max_timestamp)
        if not position:
            self.first_timestamp = max_timestamp
        self.touched_ms = now_ms
        self.size = position + size

    def append_run(
        self, data: bytes | bytearray | memoryview, headers: Sequence[BatchHeader], *, now_ms: int
    ) -> None:
        """Write batches at the end that lie one behind the other in `data`, at most `index_room` of them.

        Raises:
            DiskFull, DiskFailed: nothing was written.
        """
        indexes, file = self._indexes, self._file.owned
        assert indexes is not None
        assert file is not None
        position = self.size
        indexes.make_room_for_run(position, size=len(data), count=len(headers))
        file.append((data,))
        if not position:
            self.first_timestamp = headers[0].max_timestamp
        for header in headers:
            indexes.add(position, header.last_offset, header.latest_timestamp)
            position += header.size
        self.touched_ms = now_ms
        self.size = position

    def _append_abort(
        self,
        file: LogFile,
        buffers: Sequence[bytes | bytearray | memoryview],
        aborted: AbortedTransaction,
    ) -> None:
        """The index first: a marker that it does not know of would let readers have what was aborted."""
        self.aborted.prepare(aborted)
        try:
            file.append(buffers)
        except StorageError:
            self.aborted.undo()
            raise
        self.aborted.add()

    @property
    def is_index_full(self) -> bool:
        return self._indexes is not None and self._indexes.is_full

    @property
    def index_room(self) -> int:
        """How many batches may surely be appended before the index is full. It is writable."""
        assert self._indexes is not None
        return self._indexes.room

    def take_file(self) -> LogFile:
        """The owner's file, to be scanned and cut; nobody is reading yet."""
        return self._own_file()

    def adopt(self, indexes: SegmentIndexes, *, first_timestamp: int, size: int) -> None:
        """Take over what a scan of the whole file has found; ready for appending."""
        self._indexes = indexes
        self.first_timestamp = first_timestamp
        self.size = size
        self.is_writable = True

    def finish(self) -> None:
        """Nothing more will be appended: complete the indexes and trim them."""
        if self.is_writable:
            assert self._indexes is not None
            self._indexes.finish()
            self.is_writable = False

    def truncate_to(self, offset: Offset) -> None:
        """Cut off the batch that holds `offset` and all behind it."""
        found = self.find(offset)
        if found is None:
            return
        file = self._own_file()
        log_end = self.end_before(offset)
        indexes = self._indexes or self._index_source.own(file, self.size)
        indexes.save()
        indexes.make_writable()
        self.is_writable = False
        self._largest = self._read_indexes = None
        self._file.release_reader()
        self.size = found.position
        file.truncate(found.position)
        self.aborted.truncate_to(log_end)
        indexes.truncate_to(log_end)
        indexes.finish()
        self._indexes = None
        self.make_writable(log_end=log_end)

    # -- looking: also from other threads ----------------------------------------------------------------------------

    def find(self, offset: Offset, *, cached_only: bool = False) -> BatchAt | None:
        """The first batch that ends with `offset` or later: the one that holds it, where one does."""
        for batch in self.walk_from(offset, cached_only=cached_only):
            header = batch[1]
            if header.base_offset + header.last_offset_delta >= offset:
                return batch
        return None

    def end_before(self, offset: Offset) -> Offset:
        """Where the batches end that hold nothing at `offset` or behind it.

        Not where the next one begins: in a log with gaps, that is more than the file would tell without it.
        """
        end = self.base_offset
        for _, header in self.walk_from(Offset(offset - 1)):
            if header.last_offset >= offset:
                break
            end = header.next_offset
        return end

    def floor_position(self, offset: Offset) -> int:
        """A position with no batch before it that ends with `offset` or later; cheap, and at most an interval away."""
        entry = self.indexes().offsets.lookup(offset) if self.size else None
        return entry.position if entry is not None else 0

    def walk_from(self, offset: Offset, *, cached_only: bool = False) -> Iterator[BatchAt]:
        """Every batch from a little before `offset` to the end of the file.

        An index is a hint: where it leads astray it is made anew from the log.

        Raises:
            SegmentCorrupt: the log file is damaged.
            NotCached: `cached_only`, and something would have to come from the disk.
        """
        size = self.size
        if not size:
            return iter(())
        file = self.file
        indexes = self.indexes(cached_only=cached_only)
        walk = walk_indexed(indexes, file, size, offset, cached_only=cached_only)
        if walk is not None:
            return walk
        if self.is_writable:
            # The owner is adding to it: do without.
            return walk_headers(file, 0, size, cached_only=cached_only)
        self._read_indexes = self._index_source.rebuild(file, size)
        self._indexes = None
        walk = walk_indexed(self._read_indexes, file, size, offset, cached_only=cached_only)
        assert walk is not None
        return walk

    def next_offset(self) -> Offset:
        """The offset after the last batch, from the file itself."""
        if not self.size:
            return self.base_offset
        return self._index_source.walk_tail(self.indexes(), self.file, self.size)[0]

    def read(self, position: int, size: int, *, cached_only: bool = False) -> bytes | memoryview:
        """Exactly these bytes.

        Raises:
            SegmentCorrupt: the file ends before.
            NotCached: `cached_only`, and they would have to come from the disk.
        """
        data = self.file.read(position, size, cached_only=cached_only)
        if len(data) != size:
            raise SegmentCorrupt(f"{self.path}: {len(data)} of {size} bytes at byte {position}")
        return data

    def read_batch(self, batch: BatchAt, *, cached_only: bool = False) -> RecordBatch:
        """Raises as `read`."""
        data = self.read(batch.position, batch.header.size, cached_only=cached_only)
        return RecordBatch(batch.header, data)

    @property
    def file(self) -> LogFile:
        """The log file, opened at the first need.

        Raises:
            SegmentCorrupt: it is shorter than it was.
        """
        self._is_used = True
        size = self.size
        file = self._file.to_read()
        if file is not self._file.owned and file.size < size:
            raise SegmentCorrupt(f"{self.path} has {file.size} bytes, there were {size}")
        return file

    def indexes(self, *, cached_only: bool = False) -> SegmentIndexes:
        """Both indexes, opened at the first need. The segment is not empty."""
        size = self.size
        indexes = self._indexes or self._read_indexes
        if indexes is None:
            indexes = self._index_source.open(self.file, size, cached_only=cached_only)
            self._read_indexes = indexes
        return indexes

    # -- on the disk -------------------------------------------------------------------------------------------------

    def sync_log(self) -> None:
        """Return when every batch appended before is on the disk. From any thread."""
        self.file.sync()

    def sync_all(self) -> None:
        """The same, and the indexes. From any thread."""
        self.file.sync()
        indexes = self._indexes
        if indexes is not None:
            indexes.sync()
        self.aborted.sync()

    def keep_open(self, *, with_indexes: bool = False) -> None:
        """Open the log file now, before it loses its name, for those who still have the segment and come to read.

        The indexes too, where their names go to others.
        """
        self._own_file()
        self.aborted.keep_open()
        if with_indexes and self.size:
            self.indexes()

    def release_if_idle(self) -> None:
        """Let go of the files if nobody has looked at them since this was asked last.

        Whoever reads from them right now goes on doing so. Everything must be on the disk.
        """
        if not self._is_used and not self.is_writable:
            self.save_indexes()
            self.release()
        self._is_used = False

    def release(self) -> None:
        """Let go of all files; they are opened again when they are needed."""
        indexes = self._indexes or self._read_indexes
        if indexes is not None:
            self._largest = indexes.largest
        self._file.release()
        self._indexes = self._read_indexes = None
        self.aborted.release()
        self.is_writable = False

    def save_indexes(self) -> None:
        """Write indexes that had to be made anew to their files."""
        if self._read_indexes is not None:
            self._read_indexes.save()

    # -- opening -----------------------------------------------------------------------------------------------------

    def _own_file(self, *, create: bool = False) -> LogFile:
        if self._file.owned is None and self._file.own(create=create).size != self.size:
            has = self._file.own().size
            self._file.release()
            raise SegmentCorrupt(f"{self.path} has {has} bytes, there were {self.size}")
        return self._file.own()
