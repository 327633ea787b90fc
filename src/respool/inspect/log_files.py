"""Reads a log's files offline, in chunks, with the log's own codecs. Damage is returned, not raised.

The index files of a running broker are preallocated: zeros follow the entries.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from itertools import repeat
from pathlib import Path
from typing import IO, NamedTuple, TypeVar

from crc32c import crc32c

from respool.log.checkpoint_text import decode_lines
from respool.log.index.offset_index import ENTRY_BYTES as OFFSET_ENTRY_BYTES
from respool.log.index.offset_index import OffsetEntry, decode_offset_entries
from respool.log.index.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from respool.log.index.time_index import TimeEntry, decode_time_entries
from respool.log.index.transaction_index import ENTRY_BYTES as ABORTED_ENTRY_BYTES
from respool.log.index.transaction_index import AbortedTransaction, decode_aborted
from respool.model.errors import SegmentCorrupt
from respool.model.ids import Offset
from respool.records.batch import (
    CRC_COVERS_FROM,
    HEADER_BYTES,
    LENGTH_MIN,
    MAGIC,
    BatchHeader,
    RecordBatch,
    read_header,
)

T = TypeVar("T")

CHUNK_BYTES = 1024 * 1024
# Batches above this size, compressed or not, are shown without their records.
RECORDS_BYTES_MAX = 256 * 1024 * 1024


class FileKind(Enum):
    LOG = auto()
    OFFSET_INDEX = auto()
    TIME_INDEX = auto()
    TRANSACTION_INDEX = auto()
    SNAPSHOT = auto()
    CHECKPOINT = auto()


_KIND_BY_SUFFIX = {
    ".log": FileKind.LOG,
    ".index": FileKind.OFFSET_INDEX,
    ".timeindex": FileKind.TIME_INDEX,
    ".txnindex": FileKind.TRANSACTION_INDEX,
    ".snapshot": FileKind.SNAPSHOT,
}


def kind_of(path: Path) -> FileKind | None:
    if path.name.endswith("-checkpoint"):
        return FileKind.CHECKPOINT
    kind = _KIND_BY_SUFFIX.get(path.suffix)
    return kind if kind is not None and path.stem.isdecimal() else None


def base_offset_of(path: Path) -> int:
    """The base offset in a file name: 42 for `00000000000000000042.log`."""
    return int(path.stem)


class FoundBatch(NamedTuple):
    position: int
    header: BatchHeader
    # None: not checked.
    crc_ok: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """From `position` on, the file cannot be read as batches."""

    position: int
    what: str
    # The file merely ends too early, as after a crash or while a broker is writing.
    is_truncated: bool


class SegmentFile:
    """A `.log` file. Memory is bounded: large batches are read in chunks."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[bytes] = path.open("rb", buffering=CHUNK_BYTES)
        # A running broker may append meanwhile; what it adds is ignored.
        self.size = os.fstat(self._file.fileno()).st_size

    def close(self) -> None:
        self._file.close()

    def batches(self, *, check: bool, skip_below: int = 0) -> Iterator[FoundBatch | Broken]:
        """Yield batches that end at `skip_below` or later, then possibly one `Broken`; `check` verifies checksums."""
        position = 0
        while position < self.size:
            header = self._read_header(position)
            if isinstance(header, Broken):
                yield header
                return
            if header.last_offset >= skip_below:
                crc_ok = self._crc_fits(position, header) if check else None
                yield FoundBatch(position, header, crc_ok)
            position += header.size

    def read_batch(self, found: FoundBatch) -> RecordBatch:
        """The whole batch with its records. The caller has checked its size."""
        assert found.header.size <= RECORDS_BYTES_MAX
        self._file.seek(found.position)
        return RecordBatch(found.header, self._file.read(found.header.size))

    def _read_header(self, position: int) -> BatchHeader | Broken:
        left = self.size - position
        self._file.seek(position)
        data = self._file.read(HEADER_BYTES)
        if len(data) < HEADER_BYTES:
            if not data.strip(b"\0"):
                return self._zeros(position)
            return Broken(
                position=position,
                what=f"{left} bytes at the end, a batch's header alone has {HEADER_BYTES}",
                is_truncated=True,
            )
        if not data.strip(b"\0"):
            return self._zeros(position)
        header = read_header(data)
        if header.magic != MAGIC:
            what = f"no batch begins here: its format would be v{header.magic}, only v{MAGIC} exists in a log"
        elif header.length < LENGTH_MIN:
            what = f"no batch begins here: its length would be {header.length}, the least is {LENGTH_MIN}"
        elif header.last_offset_delta < 0 or header.record_count < 0:
            what = (
                f"no batch begins here: it would have {header.record_count} records "
                f"and end {header.last_offset_delta} after its first"
            )
        elif header.size > left:
            return Broken(
                position=position,
                what=f"a batch announces {header.size} bytes where {left} are left",
                is_truncated=True,
            )
        else:
            return header
        return Broken(position=position, what=what, is_truncated=False)

    def _zeros(self, position: int) -> Broken:
        """Zeros to the end, as in a file that grew before a power cut lost its bytes, or zeros amid data."""
        self._file.seek(position)
        left = self.size - position
        only_zeros = True
        while left > 0 and only_zeros:
            chunk = self._file.read(min(CHUNK_BYTES, left))
            only_zeros = bool(chunk) and chunk.count(0) == len(chunk)
            left -= len(chunk)
        what = (
            f"{self.size - position} zero bytes at the end"
            if only_zeros
            else "zeros, with other bytes after them"
        )
        return Broken(position=position, what=what, is_truncated=only_zeros)

    def _crc_fits(self, position: int, header: BatchHeader) -> bool:
        self._file.seek(position + CRC_COVERS_FROM)
        left = header.size - CRC_COVERS_FROM
        crc = 0
        while left > 0:
            chunk = self._file.read(min(CHUNK_BYTES, left))
            if not chunk:
                return False
            crc = crc32c(chunk, crc)
            left -= len(chunk)
        return crc == header.crc


def read_offset_index(path: Path) -> Iterator[OffsetEntry]:
    base = Offset(base_offset_of(path))
    return _entries(path, OFFSET_ENTRY_BYTES, lambda data: decode_offset_entries(data, base))


def read_time_index(path: Path) -> Iterator[TimeEntry]:
    base = Offset(base_offset_of(path))
    return _entries(path, TIME_ENTRY_BYTES, lambda data: decode_time_entries(data, base))


def _entries(path: Path, size: int, decode: Callable[[bytes], Iterator[T]]) -> Iterator[T]:
    """Yield all entries except trailing zeros. Zeros before other entries are not free space, but wrong entries."""
    zero: T | None = None
    zeros = 0
    with path.open("rb") as file:
        while data := file.read(size * 10_000):
            # A file size that is not a multiple of the entry size is reported by `odd_bytes`.
            whole = data[: len(data) // size * size]
            if zero is not None and whole.count(0) == len(whole):
                zeros += len(whole) // size
                continue
            for number, entry in enumerate(decode(whole)):
                if whole.count(0, number * size, (number + 1) * size) == size:
                    zero = entry
                    zeros += 1
                    continue
                if zero is not None:
                    yield from repeat(zero, zeros)
                zeros = 0
                yield entry


def odd_bytes(path: Path, kind: FileKind) -> int:
    """The number of bytes after the last whole entry of an index."""
    size = OFFSET_ENTRY_BYTES if kind is FileKind.OFFSET_INDEX else TIME_ENTRY_BYTES
    return path.stat().st_size % size


def read_transaction_index(path: Path) -> list[AbortedTransaction]:
    """
    Raises:
        ValueError: the file does not consist of whole entries, or its version is unknown.
    """
    data = path.read_bytes()
    left = len(data) % ABORTED_ENTRY_BYTES
    if left:
        raise ValueError(f"{left} bytes at the end make no whole entry")
    try:
        return decode_aborted(data, path.name)
    except SegmentCorrupt as error:
        raise ValueError(str(error)) from error


def read_checkpoint(path: Path) -> tuple[tuple[str, ...], list[list[str]]]:
    """The field names of an entry, and the entries as lists of words.

    Raises:
        ValueError: the text is not such a checkpoint; the message says why.
    """
    of_epochs = path.name.startswith("leader-epoch")
    names = ("epoch", "start_offset") if of_epochs else ("topic", "partition", "offset")
    return names, decode_lines(path.read_bytes(), words=len(names))
