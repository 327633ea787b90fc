"""Looking at single records: who can tell keys, and sort out records by them, fast enough for whole logs.

Everything else treats a batch as opaque bytes. Compaction cannot: so the work per record sits behind this port, in
plain Python (`records/plain_scan.py`) or compiled (`columnar/`), and both decide alike.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

Buffer = bytes | bytearray | memoryview

# What `find_keyless` says of bytes that are not records.
NO_RECORDS = -1


class Section(NamedTuple):
    """Where the records of one batch lie in a buffer, decompressed, and what its header says of them."""

    begin: int
    end: int
    record_count: int
    base_offset: int
    last_offset_delta: int
    # Deletions have been shown to readers long enough.
    drop_tombstones: bool = False


class Verdict(NamedTuple):
    """What is to become of a section."""

    # How many records stay; -1 where the bytes are not `record_count` records. Then all must stay as it is.
    kept: int
    # How many of those are deletions: a key and no value.
    tombstones: int
    # The largest timestamp delta of those that stay.
    timestamp_delta_max: int


class Sifting(Protocol):
    """Sections with a verdict each. It is good until the next one is made."""

    @property
    def verdicts(self) -> Sequence[Verdict]: ...

    def kept_records(self, index: int, *, timestamp_shift: int) -> Buffer:
        """The records of one section that stay, with so much added to each timestamp delta, one after the other."""
        ...


class KeyOffsets(Protocol):
    """The newest offset of every key, as far as the room goes. For one thread at a time.

    A key is known by a hash of 128 bits, keyed with a secret: two keys that share one, by chance or by somebody's
    work, are less likely than a disk that decays into a valid checksum.
    """

    def add(self, data: Buffer, sections: Sequence[Section], *, begin: int) -> int | None:
        """Enter the keys of all records from the offset `begin` on; sections come in the order of their offsets.

        Returns None, or the offset of the first record there was no room for: from there on none was entered. One
        key always has room. Sections that are not records are passed over.
        """
        ...

    def sift(self, data: Buffer, sections: Sequence[Section], *, end: int) -> Sifting:
        """Sort out what nobody needs: records before the offset `end` that have no key, or are not the newest of it.

        Everything before `end` must have been entered, apart from what was sifted in an earlier run.
        """
        ...


class RecordScanner(Protocol):
    @property
    def quick_bytes_max(self) -> int:
        """How many bytes of records may be looked at where others must not be kept waiting."""
        ...

    def prepare(self) -> None:
        """Get faster, where that takes time and is worth it: called now and then, off the loop."""
        ...

    def find_keyless(
        self, records: Buffer, *, record_count: int, last_offset_delta: int
    ) -> int | None:
        """The number of the first record that has no key; None when all have one, NO_RECORDS for other bytes."""
        ...

    def key_offsets(self, *, bytes_max: int, keys_max: int, secret: bytes) -> KeyOffsets:
        """An empty map within `bytes_max` of memory; there will not be more than `keys_max` keys."""
        ...
