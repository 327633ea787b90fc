"""A compacted segment takes the place of those it was made from: at every moment the power may go, one or the other.

```
 1. 0.txnindex.cleaned                                   ->  .swap      sync the folder
    0.index.cleaned, 0.timeindex.cleaned, 0.log.cleaned  ->  .swap      sync the folder: from here on the new one counts
 2. 0.log, 0.index … of all the old ones                 ->  .deleted   sync the folder
 3. 0.txnindex.swap                                      ->  0.txnindex sync the folder
    0.index.swap, 0.timeindex.swap, 0.log.swap           ->  0.index …
```
An opening that finds `.cleaned` files deletes them: the old segments are all there. One that finds a `.log.swap` does
the rest of 2 and 3. An index that is left over alone is deleted, for it can be made again. The names are Kafka's, and
Kafka would do the same.

Not so the index of aborted transactions: whichever log counts must have its own, or readers are shown what was
aborted, or not shown what was not. So it goes ahead of its log, for sure. Where the first of the old segments has one,
the new one has one too, maybe empty: so under that name there is never one that belongs to neither.
"""

from collections.abc import Sequence

from respool.log.batch_walk import walk_headers
from respool.log.file_names import (
    CLEANED,
    LOG,
    OFFSET_INDEX,
    SWAP,
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
# The log last: its name alone says that the new segment counts.
KINDS = (*INDEX_KINDS, LOG)


def swap_segments(
    disk: Disk, folder: str, old: Sequence[Segment], snapshots: SnapshotFiles
) -> list[RemovedSegment]:
    """Put the cleaned segment in the place of the old ones, of which the first has its base offset.

    Readers go on with the old ones. The last renames are on the disk with the next sync of the folder.

    Raises:
        HandlesExhausted: nothing was done.
        DiskFailed: it is not known how far this went. The next opening brings it to an end.
    """
    for segment in old:
        # For readers that have the old list: under its names there will be other files.
        segment.keep_open(with_indexes=True)
    try:
        return _swap(disk, folder, old, snapshots)
    except HandlesExhausted as error:
        # From here on it is more than a passing trouble.
        raise DiskFailed(f"{folder}: {error}") from error


def _swap(
    disk: Disk, folder: str, old: Sequence[Segment], snapshots: SnapshotFiles
) -> list[RemovedSegment]:
    base_offset = old[0].base_offset
    _rename(disk, folder, base_offset, CLEANED, SWAP)
    disk.sync_folder(folder)
    # The snapshot at the first one's base belongs to the new one from now on.
    removed = [remove_segment(disk, folder, old[0], None, is_replaced=True)]
    removed += [remove_segment(disk, folder, segment, snapshots) for segment in old[1:]]
    disk.sync_folder(folder)
    _rename(disk, folder, base_offset, SWAP, "")
    return removed


def complete_swaps(disk: Disk, folder: str) -> None:
    """Bring swaps that were interrupted to their end, durably."""
    names = disk.list_folder(folder)
    bases = [base for name in names if (base := _base_of(name, LOG + SWAP)) is not None]
    if bases:
        # What a killed process left in memory must be sure before anything that hangs on it.
        disk.sync_folder(folder)
        for base in bases:
            _delete_replaced(disk, folder, base)
        disk.sync_folder(folder)
        for base in bases:
            _rename(disk, folder, base, SWAP, "")
        disk.sync_folder(folder)


def _delete_replaced(disk: Disk, folder: str, base_offset: Offset) -> None:
    """Delete what lies where the new segment is to be. Its own log is replaced by the last rename."""
    file = disk.open_log(f"{folder}/{offset_name(base_offset, LOG)}{SWAP}", create=False)
    end = base_offset
    for _, header in walk_headers(file, 0, file.size):
        end = header.next_offset
    file.close()
    for name in disk.list_folder(folder):
        parsed = parse_offset_name(name)
        if parsed is None or parsed[1] not in (*KINDS, TRANSACTION_INDEX):
            continue
        if base_offset < parsed[0] < end or (parsed[0] == base_offset and parsed[1] in INDEX_KINDS):
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
