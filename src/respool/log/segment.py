"""One segment of a log: a `.log` file with its two indexes, named by its base offset.

Only a log's last segment is written; the others never change until they are removed as a whole. Files are opened when
first needed and closed when idle: neither startup nor the number of open files grows with the data on the disk.

The owner's thread writes; others may read at the same time. They see `size` grow only after the bytes and index entries
are written.
"""

from collections.abc import Iterator, Sequence

from respool.log.batch_walk import BatchAt, walk_headers
from respool.log.file_names import LOG, TRANSACTION_INDEX, offset_name
from respool.log.index.index_source import IndexSource, walk_indexed
from respool.log.index.segment_indexes import IndexSettings, SegmentIndexes
from respool.log.index.tag_index import TagIndex
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
        "tags",
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
        """`size` and `aborted_bytes` are the sizes of the log file and of the transaction index."""
        self._index_source = IndexSource(disk, folder, base_offset, settings)
        self._file = SharedFile(disk, f"{folder}/{offset_name(base_offset, LOG)}")
        # The owner's indexes, once it writes; readers use them too.
        self._indexes: SegmentIndexes | None = None
        # Opened by readers before the owner opened its own.
        self._read_indexes: SegmentIndexes | None = None
        # Set by every lookup, cleared by `release_if_idle`.
        self._is_used = False
        # The largest timestamp, if only that was read.
        self._largest: TimeEntry | None = None
        # Aborted transactions whose markers are in this segment.
        self.aborted = TransactionIndex(
            disk,
            f"{folder}/{offset_name(base_offset, TRANSACTION_INDEX)}",
            count=aborted_bytes // ENTRY_BYTES,
        )
        # Which batches may hold which tags; only topics with views have it.
        self.tags = TagIndex(disk, folder, base_offset)
        self.base_offset = base_offset
        # Size of the whole batches in the file. A reader takes it before it takes the file: then the file is at least
        # that long.
        self.size = size
        # True if `append` may be called. Invariant: the owner's indexes then cover every batch.
        self.is_writable = False
        # The largest timestamp of the first batch; the segment's age counts from it. Known while the segment is
        # writable; NO_TIMESTAMP if it is empty or that batch has none.
        self.first_timestamp = NO_TIMESTAMP
        # When this process created the segment, or found it at startup.
        self.created_ms = now_ms
        # Time of the last append; for appends of an earlier process, not earlier than they were.
        self.touched_ms = now_ms

    @classmethod
    def create(
        cls, disk: Disk, folder: str, base_offset: Offset, settings: IndexSettings, *, now_ms: int
    ) -> "Segment":
        """Create an empty segment. Its name is durable once the folder is synced.

        Raises:
            DiskFull: there is no space for it.
        """
        segment = cls(disk, folder, base_offset, settings, size=0, now_ms=now_ms)
        segment.create_file()
        return segment

    def create_file(self) -> None:
        """Create the file of a segment that was constructed without one."""
        self._own_file(create=True)

    @property
    def path(self) -> str:
        return self._file.path

    @property
    def is_open(self) -> bool:
        """True if any of its files is open."""
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
            # Without keeping an index open: retention reads this for every partition.
            if self.size:
                self._largest = self._index_source.read_largest() or self.indexes().largest
            else:
                self._largest = TimeEntry(NO_TIMESTAMP, self.base_offset)
        return self._largest

    @property
    def retention_timestamp(self) -> int:
        """The timestamp that retention uses: the largest of the records.

        If no record has one, Kafka uses the file's modification time. We use the last known append, which is never
        earlier: after a restart the segment may be kept longer, never shorter.
        """
        timestamp = self.largest.timestamp
        return timestamp if timestamp >= 0 else self.touched_ms

    # -- writing -----------------------------------------------------------------------------------------------------

    def make_writable(self, *, log_end: Offset) -> None:
        """Prepare for appends at `log_end`.

        Raises:
            SegmentCorrupt: the file does not end there.
            DiskFull: there is no space for the indexes.
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
        """Append one batch of `size` bytes; it may be the marker of an aborted transaction.

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
        """Append consecutive batches from `data`, at most `index_room` of them.

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
        """Write the index first: a marker missing in the index would expose aborted records to readers."""
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
        """How many batches are sure to fit before the index is full. The segment is writable."""
        assert self._indexes is not None
        return self._indexes.room

    def take_file(self) -> LogFile:
        """The owner's file, to be scanned and truncated; there are no readers yet."""
        return self._own_file()

    def adopt(self, indexes: SegmentIndexes, *, first_timestamp: int, size: int) -> None:
        """Take over the result of a scan of the whole file; then the segment is ready for appends."""
        self._indexes = indexes
        self.first_timestamp = first_timestamp
        self.size = size
        self.is_writable = True

    def finish(self) -> None:
        """No more appends follow: complete the indexes and trim them."""
        if self.is_writable:
            assert self._indexes is not None
            self._indexes.finish()
            self.is_writable = False

    def truncate_to(self, offset: Offset) -> None:
        """Remove the batch that contains `offset` and everything after it. Then it is the active segment."""
        # First: the segment will have other bytes, of which a file left behind says nothing.
        self.tags.drop()
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

    # -- lookups: from any thread ------------------------------------------------------------------------------------

    def find(self, offset: Offset, *, cached_only: bool = False) -> BatchAt | None:
        """Return the first batch whose last offset is at or after `offset`: the batch that contains it, if there is
        one.
        """
        for batch in self.walk_from(offset, cached_only=cached_only):
            header = batch[1]
            if header.base_offset + header.last_offset_delta >= offset:
                return batch
        return None

    def end_before(self, offset: Offset) -> Offset:
        """The end of the batches that are wholly before `offset`.

        In a log with gaps this can be lower than the base offset of the next batch, which a truncated file no longer
        shows.
        """
        end = self.base_offset
        for _, header in self.walk_from(Offset(offset - 1)):
            if header.last_offset >= offset:
                break
            end = header.next_offset
        return end

    def floor_position(self, offset: Offset) -> int:
        """A position before the batch that contains `offset`; cheap, at most one index interval away from it."""
        entry = self.indexes().offsets.lookup(offset) if self.size else None
        return entry.position if entry is not None else 0

    def walk_from(self, offset: Offset, *, cached_only: bool = False) -> Iterator[BatchAt]:
        """Yield every batch from shortly before `offset` to the end of the file.

        An index is a hint: if it is wrong, it is rebuilt from the log.

        Raises:
            SegmentCorrupt: the log file is damaged.
            NotCached: `cached_only`, and bytes would have to come from the disk.
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
            # The owner is writing to it: walk without an index.
            return walk_headers(file, 0, size, cached_only=cached_only)
        self._read_indexes = self._index_source.rebuild(file, size)
        self._indexes = None
        walk = walk_indexed(self._read_indexes, file, size, offset, cached_only=cached_only)
        assert walk is not None
        return walk

    def next_offset(self) -> Offset:
        """The offset after the last batch, read from the file."""
        if not self.size:
            return self.base_offset
        return self._index_source.walk_tail(self.indexes(), self.file, self.size)[0]

    def read(self, position: int, size: int, *, cached_only: bool = False) -> bytes | memoryview:
        """Return exactly these bytes.

        Raises:
            SegmentCorrupt: the file is too short.
            NotCached: `cached_only`, and bytes would have to come from the disk.
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
        """The log file, opened on first use.

        Raises:
            SegmentCorrupt: it is shorter than before.
        """
        self._is_used = True
        size = self.size
        file = self._file.to_read()
        if file is not self._file.owned and file.size < size:
            raise SegmentCorrupt(f"{self.path} has {file.size} bytes, there were {size}")
        return file

    def indexes(self, *, cached_only: bool = False) -> SegmentIndexes:
        """Both indexes, opened on first use. The segment is not empty."""
        size = self.size
        indexes = self._indexes or self._read_indexes
        if indexes is None:
            indexes = self._index_source.open(self.file, size, cached_only=cached_only)
            self._read_indexes = indexes
        return indexes

    # -- sync and close ----------------------------------------------------------------------------------------------

    def sync_log(self) -> None:
        """Make every batch appended so far durable. From any thread."""
        self.file.sync()

    def sync_all(self) -> None:
        """As `sync_log`, and sync the indexes. From any thread."""
        self.file.sync()
        indexes = self._indexes
        if indexes is not None:
            indexes.sync()
        self.aborted.sync()

    def keep_open(self, *, with_indexes: bool = False) -> None:
        """Open the log file before it is renamed, for readers that still hold this segment.

        With the indexes, if their names are reused.
        """
        self._own_file()
        self.aborted.keep_open()
        if with_indexes and self.size:
            self.indexes()

    def release_if_idle(self) -> None:
        """Close the files if nobody used them since the last call.

        Active readers continue. Everything must be durable.
        """
        if not self._is_used and not self.is_writable:
            self.save_indexes()
            self.release()
        self._is_used = False

    def release(self) -> None:
        """Close all files; they are opened again when needed."""
        indexes = self._indexes or self._read_indexes
        if indexes is not None:
            self._largest = indexes.largest
        self._file.release()
        self._indexes = self._read_indexes = None
        self.aborted.release()
        self.tags.release()
        self.is_writable = False

    def save_indexes(self) -> None:
        """Write rebuilt indexes to their files."""
        if self._read_indexes is not None:
            self._read_indexes.save()

    # -- opening -----------------------------------------------------------------------------------------------------

    def _own_file(self, *, create: bool = False) -> LogFile:
        if self._file.owned is None and self._file.own(create=create).size != self.size:
            has = self._file.own().size
            self._file.release()
            raise SegmentCorrupt(f"{self.path} has {has} bytes, there were {self.size}")
        return self._file.own()
