"""The entries of a partition's manifest: one small JSON object each, numbered without gaps, never changed.

| kind    | meaning                                                                                   |
|---------|-------------------------------------------------------------------------------------------|
| `add`   | this object has the records from `base` up to `next`, where the archive ended before      |
| `start` | the log starts at this offset now: retention or DeleteRecords                              |
| `cut`   | what was archived from this offset on is not of the partition's history (unclean election) |
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from respool.archive.object_keys import PartitionKeys
from respool.archive.sealed_json import open_json, seal_json
from respool.archive.segment_trailer import FOOTER_BYTES, TRAILER_BYTES_MAX, EpochStart
from respool.model.archiving.archive_errors import ArchiveCorrupt
from respool.model.ids import BrokerId, LeaderEpoch, Offset

VERSION = 1
ENTRY_BYTES_MAX = 1024 * 1024
_LONG_MAX = 2**63 - 1
_INT_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryAuthor:
    """By whom an entry was written."""

    leader_epoch: LeaderEpoch
    broker: BrokerId
    # Random for each attempt: a writer recognizes its own entry by it.
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedSegment:
    """An `add` entry: one object."""

    by: EntryAuthor
    key: str
    base: Offset
    # Everything before it is archived. A `cut` lowers it.
    next: Offset
    # The bytes of the log in the object; the trailer follows them.
    log_bytes: int
    size: int
    trailer_crc: int
    # -1: no record has a timestamp.
    largest_timestamp: int
    # The epochs that begin in the segment, and the one in effect at its start.
    epochs: tuple[EpochStart, ...]
    # Transactions whose abort markers are in the segment: how many, and the first offset of them all.
    aborted_count: int
    aborted_from: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStartEntry:
    by: EntryAuthor
    log_start: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class CutEntry:
    by: EntryAuthor
    end: Offset


ManifestEntry: TypeAlias = ArchivedSegment | LogStartEntry | CutEntry


def encode_entry(entry: ManifestEntry) -> bytes:
    return seal_json(entry_fields(entry))


def entry_fields(entry: ManifestEntry) -> dict[str, object]:
    by = entry.by
    fields: dict[str, object] = {
        "v": VERSION,
        "epoch": by.leader_epoch,
        "broker": by.broker,
        "token": by.token,
    }
    if isinstance(entry, LogStartEntry):
        return {**fields, "kind": "start", "log_start": entry.log_start}
    if isinstance(entry, CutEntry):
        return {**fields, "kind": "cut", "end": entry.end}
    return {
        **fields,
        "kind": "add",
        "key": entry.key,
        "base": entry.base,
        "next": entry.next,
        "log_bytes": entry.log_bytes,
        "size": entry.size,
        "trailer_crc": entry.trailer_crc,
        "largest_timestamp": entry.largest_timestamp,
        "epochs": [list(one) for one in entry.epochs],
        "aborted_count": entry.aborted_count,
        "aborted_from": entry.aborted_from,
    }


def decode_entry(data: bytes | memoryview, keys: PartitionKeys, *, name: str) -> ManifestEntry:
    """
    Raises:
        ArchiveCorrupt: it is not an entry of this partition, or its format is newer.
    """
    fields = open_json(data, name=name, bytes_max=ENTRY_BYTES_MAX)
    return entry_of(fields, keys, name=name)


def entry_of(fields: Any, keys: PartitionKeys, *, name: str) -> ManifestEntry:
    """As `decode_entry`, from parsed JSON."""
    if not isinstance(fields, dict):
        raise ArchiveCorrupt(f"{name} is not a JSON object")
    read = _Fields(fields, name)
    if read.integer("v", 1, _INT_MAX) > VERSION:
        raise ArchiveCorrupt(
            f"{name}: format {fields['v']}, this version reads {VERSION}; upgrade the broker"
        )
    by = EntryAuthor(
        leader_epoch=LeaderEpoch(read.integer("epoch", 0, _INT_MAX)),
        broker=BrokerId(read.integer("broker", 0, _INT_MAX)),
        token=read.text("token"),
    )
    kind = read.text("kind")
    if kind == "start":
        return LogStartEntry(by=by, log_start=read.offset("log_start"))
    if kind == "cut":
        return CutEntry(by=by, end=read.offset("end"))
    if kind != "add":
        raise ArchiveCorrupt(f"{name}: unknown kind {kind!r}")
    return _segment(read, by, keys)


def _segment(read: "_Fields", by: EntryAuthor, keys: PartitionKeys) -> ArchivedSegment:
    name, key = read.name, read.text("key")
    if not keys.is_segment(key):
        raise ArchiveCorrupt(f"{name}: {key!r} is not a segment of this partition")
    base = read.offset("base")
    log_bytes = read.integer("log_bytes", 1, _LONG_MAX)
    size = read.integer("size", log_bytes + FOOTER_BYTES, log_bytes + TRAILER_BYTES_MAX)
    return ArchivedSegment(
        by=by,
        key=key,
        base=base,
        next=Offset(read.integer("next", base + 1, _LONG_MAX)),
        log_bytes=log_bytes,
        size=size,
        trailer_crc=read.integer("trailer_crc", 0, 2**32 - 1),
        largest_timestamp=read.integer("largest_timestamp", -1, _LONG_MAX),
        epochs=read.epochs("epochs"),
        aborted_count=read.integer("aborted_count", 0, _INT_MAX),
        aborted_from=Offset(read.integer("aborted_from", -1, _LONG_MAX)),
    )


class _Fields:
    """Reads typed fields; anything in the bucket may come from another program."""

    def __init__(self, fields: Mapping[str, Any], name: str) -> None:
        self._fields = fields
        self.name = name

    def integer(self, field: str, low: int, high: int) -> int:
        value = self._fields.get(field)
        if type(value) is not int or not low <= value <= high:
            raise ArchiveCorrupt(
                f"{self.name}: {field} = {str(value)[:100]}, expected {low} to {high}"
            )
        return value

    def offset(self, field: str) -> Offset:
        return Offset(self.integer(field, 0, _LONG_MAX))

    def text(self, field: str) -> str:
        value = self._fields.get(field)
        if not isinstance(value, str) or len(value) > 1_000:
            raise ArchiveCorrupt(f"{self.name}: {field} is no text")
        return value

    def epochs(self, field: str) -> tuple[EpochStart, ...]:
        value = self._fields.get(field)
        found: list[EpochStart] = []
        for one in value if isinstance(value, list) else [None]:
            if (
                not isinstance(one, list)
                or len(one) != 2
                or any(type(number) is not int or number < 0 for number in one)
            ):
                raise ArchiveCorrupt(f"{self.name}: {field} is not a list of epochs")
            found.append(EpochStart(LeaderEpoch(one[0]), Offset(one[1])))
        return tuple(found)
