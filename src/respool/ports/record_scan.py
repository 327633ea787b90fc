"""Per-record work of the broker: of compaction, key lookup and filtering; of views, conditions on key and headers.

Everything else treats batches as opaque bytes. These cannot, so their work per record is behind this port: in plain
Python (`records/plain_scan.py`) or compiled (`columnar/`), with identical results.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from respool.model.where import Where

Buffer = bytes | bytearray | memoryview

# The maximum number of a batch's records without a key that are listed.
KEYLESS_MAX = 1_000
# For a batch with more different values of one header, no values are stored.
TAG_VALUES_MAX = 4_096
# Stands for a header without a value.
NULL_TAG = 0


class KeylessRecords(NamedTuple):
    """The records of a batch that have no key."""

    total: int
    # Which they are, counted from 0; the first KEYLESS_MAX of them.
    numbers: Sequence[int]


class Section(NamedTuple):
    """The decompressed records of one batch within a buffer, and what its header says of them."""

    begin: int
    end: int
    record_count: int
    base_offset: int
    last_offset_delta: int
    # The delete horizon has passed: tombstones are removed.
    drop_tombstones: bool = False


class SectionSummary(NamedTuple):
    """What filtering retains of a section."""

    # Number of retained records; -1 if the bytes are not `record_count` records. Then the batch must stay unchanged.
    retained: int
    # How many of those are tombstones: a key without a value.
    tombstones: int
    # The largest timestamp delta of the retained records.
    timestamp_delta_max: int


class FilteredSections(Protocol):
    """The result of filtering sections. Valid until the next filtering."""

    @property
    def summaries(self) -> Sequence[SectionSummary]: ...

    def retained_records(self, index: int, *, timestamp_shift: int) -> Buffer:
        """The retained records of one section, concatenated, with `timestamp_shift` added to each timestamp delta."""
        ...


class KeyOffsets(Protocol):
    """The newest offset of each key, as far as memory suffices. For one thread at a time.

    A key is identified by a 128-bit hash with a secret: a collision, accidental or intended, is less likely than a disk
    that decays into a valid checksum.
    """

    def add(self, data: Buffer, sections: Sequence[Section], *, begin: int) -> int | None:
        """Add the keys of all records from the offset `begin` on; sections are in offset order.

        Returns None, or the offset of the first record that did not fit; from there on none was added. One key always
        fits. Malformed sections are skipped.
        """
        ...

    def filter_records(
        self, data: Buffer, sections: Sequence[Section], *, end: int
    ) -> FilteredSections:
        """Remove superseded records: those before the offset `end` without a key, or with a newer record of their key.

        Everything before `end` must have been added, except what an earlier compaction filtered.
        """
        ...


class MatchSummary(NamedTuple):
    """Which records of a section match a condition."""

    # Number of matching records; -1 if the bytes are not `record_count` records. Then no view shows any of them.
    matched: int
    # The offset delta of the last one; -1 if none matches.
    offset_delta_last: int
    # Their largest timestamp delta; 0 if none matches.
    timestamp_delta_max: int


class MatchedSections(Protocol):
    """The result of matching sections. Valid until the next matching."""

    @property
    def summaries(self) -> Sequence[MatchSummary]: ...

    def matching_records(self, index: int) -> Buffer:
        """The matching records of one section, unchanged and concatenated."""
        ...


class RecordMatcher(Protocol):
    """Evaluates one condition. For one thread at a time."""

    def match(self, data: Buffer, sections: Sequence[Section]) -> MatchedSections: ...


# The hashes of the different values of one header in a section, in any order; None if there are more than
# TAG_VALUES_MAX.
TagHashes = Sequence[int] | None


class TagCollector(Protocol):
    """Collects the values of some headers, or of the key, as hashes of 64 bits. For one thread at a time."""

    def collect(self, data: Buffer, sections: Sequence[Section]) -> list[list[TagHashes] | None]:
        """Per section, the hashes for each of the collector's names; None if it is malformed.

        A header without a value has the hash NULL_TAG. A record without the header, or without a key, has none.
        """
        ...


class KeyHasher(Protocol):
    """Hashes keys to 64 bits, with a secret. For one thread at a time."""

    def hash_keys(self, data: Buffer, sections: Sequence[Section], *, begin: int) -> dict[int, int]:
        """By offset, the hash of each key of the records from the offset `begin` on; malformed sections are skipped."""
        ...


class RecordScanner(Protocol):
    @property
    def quick_bytes_max(self) -> int:
        """How many bytes of records may be scanned on the event loop."""
        ...

    def prepare(self) -> None:
        """Do slow preparations, such as compiling: called occasionally, off the event loop."""
        ...

    def find_keyless(
        self, records: Buffer, *, record_count: int, last_offset_delta: int
    ) -> KeylessRecords | None:
        """The records without a key; None if these are not `record_count` records."""
        ...

    def key_offsets(self, *, bytes_max: int, keys_max: int, secret: bytes) -> KeyOffsets:
        """An empty map of at most `bytes_max` of memory and `keys_max` keys."""
        ...

    def matcher(self, where: Where) -> RecordMatcher:
        """A matcher for this condition."""
        ...

    def tag_collector(self, names: Sequence[bytes | None], *, secret: bytes) -> TagCollector:
        """A collector for the headers of these names; None for the key. The secret has 16 bytes."""
        ...

    def key_hasher(self, *, secret: bytes) -> KeyHasher:
        """The secret has 16 bytes."""
        ...
