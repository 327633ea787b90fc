"""Which objects of a partition's manifest must be read, and in which order."""

from collections.abc import Iterable
from typing import NamedTuple

from respool.archive.object_keys import parse_numbered
from respool.model.archiving.archive_errors import ArchiveCorrupt


class ManifestChain(NamedTuple):
    # The number of the last whole manifest; 0: there is none.
    full: int
    # The numbers of the entries after it, without gaps.
    entries: list[int]


def chain_of(keys: Iterable[str]) -> ManifestChain:
    """From the keys of the manifest's objects.

    Raises:
        ArchiveCorrupt: an entry is missing.
    """
    numbers: set[int] = set()
    fulls: set[int] = set()
    for key in keys:
        parsed = parse_numbered(key)
        if parsed is not None:
            (numbers if parsed[1] == "json" else fulls).add(parsed[0])
    # A whole manifest is written after its last entry.
    full = max((one for one in fulls if one in numbers), default=0)
    entries = sorted(one for one in numbers if one > full)
    expected = list(range(full + 1, full + 1 + len(entries)))
    if entries != expected:
        missing = min(set(expected) - set(entries))
        raise ArchiveCorrupt(f"manifest entry {missing} is missing, entry {entries[-1]} exists")
    return ManifestChain(full, entries)
