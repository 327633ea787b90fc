"""The content of a simulated machine's disk: each file and folder twice, as seen and as stored.

`seen` is the page cache: what any process on the machine reads. `stored` is what survives a power cut for sure. What
was not synced is kept or lost at random in a power cut, more harshly than by most real file systems:

- each 512-byte sector of a file separately: the new bytes, the old ones, or zeros if there were none;
- a file's length: anything between its shortest and its longest since its last sync;
- each change of a name separately, but never half a rename, and never a change without those it depends on.

A file's sync does not store its name, and a folder's sync does not store its files' content.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle
from random import Random

SECTOR_BYTES = 512
_BLOCK_BYTES = 128 * SECTOR_BYTES


class PlatterFile:
    """The bytes of one file."""

    def __init__(self, content: bytes = b"", *, synced: bool = False) -> None:
        self.seen = bytearray(content)
        self.stored = bytearray(content if synced else b"")
        # Before this position both are the same, except for sectors of a failed sync.
        self._changed_from = len(self.stored)
        self._shortest = len(self.stored)
        self._longest = len(self.seen)
        # Sectors that a failed sync marked clean without writing them, with their content. Unless they are written
        # again, no later sync stores them.
        self._dropped: dict[int, bytes] = {}
        # Parts of the file that are not in the page cache, as [start, end).
        self._cold: list[tuple[int, int]] = []
        self._mapped = False
        # Its inode number, once it has a name. Real file systems reuse numbers of deleted files; here several files may
        # have the same number at once.
        self.number = 0

    def append(self, data: bytes) -> None:
        self.seen += data
        self._longest = max(self._longest, len(self.seen))

    def resize(self, size: int) -> None:
        # A new bytearray: memoryviews of the old one may still exist.
        kept = self.seen[:size]
        self.seen = kept + bytes(size - len(kept))
        self._dropped = {
            sector: content
            for sector, content in self._dropped.items()
            if (sector + 1) * SECTOR_BYTES <= size
        }
        self._changed_from = min(self._changed_from, size)
        self._shortest = min(self._shortest, size)
        self._longest = max(self._longest, size)

    def map(self) -> None:
        """Map the file: from now on bytes may change anywhere without a call."""
        self._mapped = True
        self._changed_from = 0

    def sync(self) -> None:
        start = _sector_start(self._changed_from)
        fresh = self.seen[start:]
        for sector, content in list(self._dropped.items()):
            at = sector * SECTOR_BYTES
            if self._seen_sector(sector) != content:
                del self._dropped[sector]
            elif at >= start:
                fresh[at - start : at - start + len(content)] = self._stored_sector(sector, content)
        self.stored[start:] = fresh
        self._mark_clean()

    def fail_sync(self) -> None:
        """Do what Linux does when writeback fails: report it once, and treat the pages as clean from then on."""
        for sector in self._changed_sectors():
            self._dropped[sector] = self._seen_sector(sector)

    def evict(self) -> None:
        """Evict clean pages from the cache: those that a failed sync left unwritten are read from the disk again."""
        for sector, content in self._dropped.items():
            if self._seen_sector(sector) == content:
                at = sector * SECTOR_BYTES
                self.seen[at : at + len(content)] = self._stored_sector(sector, content)
        self._dropped.clear()

    def cut_power(self, rng: Random) -> None:
        """Decide which of the unsynced bytes survive."""
        odds = _odds(rng)
        size = self._length_after_cut(rng, odds)
        left = bytearray(self.stored)
        left += bytes(max(0, len(self.seen) - len(left)))
        for sector in self._changed_sectors():
            at = sector * SECTOR_BYTES
            new = self._seen_sector(sector)
            if self._dropped.get(sector) != new and rng.random() < odds:
                left[at : at + len(new)] = new
            elif at + SECTOR_BYTES > self._shortest and rng.random() < 0.5:
                # The file was shorter in between, so the block may have been freed and allocated again.
                end = min(at + SECTOR_BYTES, len(left))
                begin = min(max(at, self._shortest), end)
                left[begin:end] = bytes(end - begin)
        self.seen = left[:size] + bytes(max(0, size - len(left)))
        self.stored = bytearray(self.seen)
        self._dropped.clear()
        self._cold.clear()
        self._mapped = False
        self._mark_clean()

    def make_cold(self, start: int, end: int) -> None:
        self._cold.append((start, end))

    def is_cold(self, start: int, end: int) -> bool:
        return any(low < end and start < high for low, high in self._cold)

    def warm(self, start: int, end: int) -> None:
        """These bytes were read from the disk and are in the page cache now."""
        rest = []
        for low, high in self._cold:
            rest += [(low, min(high, start)), (max(low, end), high)]
        self._cold = [(low, high) for low, high in rest if low < high]

    def corrupt(self, position: int, mask: int) -> None:
        for content in (self.seen, self.stored):
            if position < len(content):
                content[position] ^= mask

    def _mark_clean(self) -> None:
        self._changed_from = 0 if self._mapped else len(self.seen)
        self._shortest = self._longest = len(self.seen)

    def _length_after_cut(self, rng: Random, odds: float) -> int:
        if odds in (0.0, 1.0):
            return len(self.seen) if odds else len(self.stored)
        between = rng.randint(self._shortest, self._longest)
        aligned = min(max(_sector_start(between), self._shortest), self._longest)
        return rng.choice((len(self.stored), len(self.seen), between, aligned))

    def _changed_sectors(self) -> Iterator[int]:
        """The sectors whose seen content differs from the stored one."""
        start = _sector_start(self._changed_from)
        for block in range(start, max(len(self.seen), len(self.stored)), _BLOCK_BYTES):
            end = block + _BLOCK_BYTES
            if self.seen[block:end] == self.stored[block:end]:
                continue
            for at in range(block, end, SECTOR_BYTES):
                sector = slice(at, at + SECTOR_BYTES)
                if self.seen[sector] != self.stored[sector]:
                    yield at // SECTOR_BYTES

    def _seen_sector(self, sector: int) -> bytes:
        return bytes(self.seen[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES])

    def _stored_sector(self, sector: int, like: bytes) -> bytes:
        at = sector * SECTOR_BYTES
        return bytes(self.stored[at : at + len(like)]).ljust(len(like), b"\0")


class PlatterFolder:
    """The names in one folder."""

    def __init__(self) -> None:
        self.seen: dict[str, Node] = {}
        self.stored: dict[str, Node] = {}


Node = PlatterFile | PlatterFolder
Place = tuple[PlatterFolder, str]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _NameChange:
    """A creation (no source), a deletion (no target) or a rename that may not be on disk yet."""

    node: Node
    source: Place | None = None
    target: Place | None = None

    def touches(self, folder: PlatterFolder) -> bool:
        return any(place is not None and place[0] is folder for place in (self.source, self.target))

    def store(self) -> None:
        if self.source is not None:
            folder, name = self.source
            assert folder.stored[name] is self.node, "what a change builds on is stored before it"
            del folder.stored[name]
        if self.target is not None:
            folder, name = self.target
            folder.stored[name] = self.node


@dataclass(slots=True)
class Platter:
    """The whole disk: the tree of names, and the changes to it that no folder sync has stored."""

    # The machine's name in file ranges, for local reads; empty: no local reads.
    name: str = ""
    root: PlatterFolder = field(default_factory=PlatterFolder)
    power_cuts: int = 0
    _pending: list[_NameChange] = field(default_factory=list)
    # Each disk has its own numbers, so that earlier runs do not affect this one.
    _numbers: Iterator[int] = field(default_factory=lambda: cycle(range(3)))

    def create(self, target: Place, node: Node) -> None:
        if isinstance(node, PlatterFile):
            node.number = next(self._numbers)
        self._change(_NameChange(node=node, target=target))

    def delete(self, source: Place) -> None:
        folder, name = source
        node = folder.seen[name]
        if isinstance(node, PlatterFolder):
            for inner in list(node.seen):
                self.delete((node, inner))
        self._change(_NameChange(node=node, source=source))

    def rename(self, source: Place, target: Place) -> None:
        folder, name = source
        self._change(_NameChange(node=folder.seen[name], source=source, target=target))

    def sync_folder(self, folder: PlatterFolder) -> None:
        self._store([change for change in self._pending if change.touches(folder)])

    def cut_power(self, rng: Random) -> None:
        """Decide which unsynced changes survive, and make the result the seen content."""
        self.power_cuts += 1
        odds = _odds(rng)
        self._store([change for change in self._pending if rng.random() < odds])
        self._pending.clear()
        # The walk descends into a folder by the names it has after this step.
        for folder in _folders(self.root):
            folder.seen = dict(folder.stored)
        for file in self.files():
            file.cut_power(rng)

    def files(self) -> Iterator[PlatterFile]:
        """Every file that has a name, sorted by name."""
        for folder in _folders(self.root):
            for name in sorted(folder.seen):
                node = folder.seen[name]
                if isinstance(node, PlatterFile):
                    yield node

    def _change(self, change: _NameChange) -> None:
        if change.source is not None:
            folder, name = change.source
            del folder.seen[name]
        if change.target is not None:
            folder, name = change.target
            folder.seen[name] = change.node
        self._pending.append(change)

    def _store(self, chosen: list[_NameChange]) -> None:
        """Store these changes, and the earlier changes of the same names and nodes that they depend on."""
        wanted = set(chosen)
        touched: set[object] = set()
        for change in reversed(self._pending):
            about = {change.node, change.source, change.target} - {None}
            if change in wanted or about & touched:
                wanted.add(change)
                touched |= about
        for change in self._pending:
            if change in wanted:
                change.store()
        self._pending = [change for change in self._pending if change not in wanted]


def _folders(folder: PlatterFolder) -> Iterator[PlatterFolder]:
    """This folder, then all below it."""
    yield folder
    for name in sorted(folder.seen):
        node = folder.seen[name]
        if isinstance(node, PlatterFolder):
            yield from _folders(node)


def _odds(rng: Random) -> float:
    """The odds that each unsynced change survives. Fixed odds would hardly ever keep everything or nothing."""
    return rng.choice((0.0, 0.1, 0.5, 0.5, 0.9, 1.0))


def _sector_start(position: int) -> int:
    return position - position % SECTOR_BYTES
