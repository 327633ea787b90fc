"""Replaces segments by their compacted copy so that a power cut at any moment leaves either the old ones or the new
one.

```
 1. 0.txnindex.cleaned                                   ->  .swap      sync the folder
    0.index.cleaned, 0.timeindex.cleaned, 0.log.cleaned  ->  .swap      sync the folder: from here on the new one counts
 2. 0.log, 0.index … of all the old ones                 ->  .deleted   sync the folder
 3. 0.txnindex.swap                                      ->  0.txnindex sync the folder
    0.index.swap, 0.timeindex.swap, 0.log.swap           ->  0.index …
```
Opening deletes `.cleaned` files: the old segments are complete. If it finds a `.log.swap`, it repeats the rest of steps
2 and 3. Other index files are deleted, since they can be rebuilt. The names are Kafka's, and Kafka would do the same.

The transaction index cannot be rebuilt: every valid log must have its own, or readers see aborted records or miss
committed ones. So it is renamed durably before its log. If the first old segment has one, the new one has one too,
possibly empty: so that name never belongs to another segment.
"""

from collections.abc import Sequence

from respool.log.batch_walk import walk_headers
from respool.log.file_names import (
    CLEANED,
    LOG,
    OFFSET_INDEX,
    SWAP,
    TAG_INDEX,
    TIME_INDEX,
    TRANSACTION_INDEX,
    offset_name,
    parse_offset_name,
)
from respool.log.producers.snapshot_files import SnapshotFiles
from respool.log.removal import RemovedSegment, remove_segment
from respool.log.segment import Segment
from respool.model.errors import DiskFailed, HandlesExhausted
from respool.model.ids import Offset
from respool.ports.disk import Disk

INDEX_KINDS = (OFFSET_INDEX, TIME_INDEX)
# The log file last: its name makes the new segment valid.
KINDS = (*INDEX_KINDS, LOG)


def swap_segments(
    disk: Disk, folder: str, old: Sequence[Segment], snapshots: SnapshotFiles
) -> list[RemovedSegment]:
    """Replace the old segments by the cleaned one, which has the first one's base offset.

    Readers continue with the old ones. The last renames are durable with the next sync of the folder.

    Raises:
        HandlesExhausted: nothing was done.
        DiskFailed: it may have been done partly. The next opening completes it.
    """
    for segment in old:
        # For readers of the old list: their names will belong to other files.
        segment.keep_open(with_indexes=True)
    try:
        return _swap(disk, folder, old, snapshots)
    except HandlesExhausted as error:
        # From here on the error is not transient.
        raise DiskFailed(f"{folder}: {error}") from error


def _swap(
    disk: Disk, folder: str, old: Sequence[Segment], snapshots: SnapshotFiles
) -> list[RemovedSegment]:
    base_offset = old[0].base_offset
    _rename(disk, folder, base_offset, CLEANED, SWAP)
    disk.sync_folder(folder)
    # The first one's snapshot belongs to the new segment.
    removed = [remove_segment(disk, folder, old[0], None, is_replaced=True)]
    removed += [remove_segment(disk, folder, segment, snapshots) for segment in old[1:]]
    disk.sync_folder(folder)
    _rename(disk, folder, base_offset, SWAP, "")
    return removed


def complete_swaps(disk: Disk, folder: str) -> None:
    """Complete interrupted swaps, durably."""
    names = disk.list_folder(folder)
    bases = [base for name in names if (base := _base_of(name, LOG + SWAP)) is not None]
    if bases:
        # Data of a killed process must be durable before anything depends on it.
        disk.sync_folder(folder)
        for base in bases:
            _delete_replaced(disk, folder, base)
        disk.sync_folder(folder)
        for base in bases:
            _rename(disk, folder, base, SWAP, "")
        disk.sync_folder(folder)


def _delete_replaced(disk: Disk, folder: str, base_offset: Offset) -> None:
    """Delete the files that the new segment replaces. Its own log file is replaced by the last rename."""
    file = disk.open_log(f"{folder}/{offset_name(base_offset, LOG)}{SWAP}", create=False)
    end = base_offset
    for _, header in walk_headers(file, 0, file.size):
        end = header.next_offset
    file.close()
    for name in disk.list_folder(folder):
        parsed = parse_offset_name(name)
        if parsed is None or parsed[1] not in (*KINDS, TAG_INDEX, TRANSACTION_INDEX):
            continue
        if base_offset < parsed[0] < end or (
            parsed[0] == base_offset and parsed[1] in (*INDEX_KINDS, TAG_INDEX)
        ):
            disk.delete(f"{folder}/{name}")


def _rename(disk: Disk, folder: str, base_offset: Offset, source: str, target: str) -> None:
    path = f"{folder}/{offset_name(base_offset, TRANSACTION_INDEX)}"
    if disk.exists(path + source):
        disk.rename(path + source, path + target)
        disk.sync_folder(folder)
    for kind in KINDS:
        path = f"{folder}/{offset_name(base_offset, kind)}"
        if disk.exists(path + source):
            disk.rename(path + source, path + target)


def _base_of(name: str, ending: str) -> Offset | None:
    parsed = parse_offset_name(name.removesuffix(ending) + LOG) if name.endswith(ending) else None
    return parsed[0] if parsed is not None else None
