"""The `.snapshot` files of one log: producer states at an offset, so that recovery need not read every header.

One is written at each new segment's base offset and at a clean stop, **after** everything before its offset is durable.
So the existence of a snapshot proves that the log below it was synced, and recovery relies on that: before a log is
truncated, snapshots beyond the new end must be durably deleted.
"""

from collections.abc import Collection, Iterable

from respool.log.file_names import SNAPSHOT, offset_name, parse_offset_name
from respool.log.producers.producer_states import ProducerStates
from respool.model.ids import Offset
from respool.ports.disk import Disk


class SnapshotFiles:
    def __init__(self, disk: Disk, folder: str, offsets: Iterable[Offset]) -> None:
        self._disk = disk
        self._folder = folder
        # Snapshots written by a running sync are not included yet.
        self._offsets = set(offsets)

    @property
    def newest(self) -> Offset:
        """The newest snapshot's offset; -1 if there is none."""
        return max(self._offsets, default=Offset(-1))

    def newest_until(self, offset: Offset) -> Offset:
        """The offset of the newest snapshot not after that offset; -1 if there is none."""
        return max((one for one in self._offsets if one <= offset), default=Offset(-1))

    @property
    def offsets(self) -> list[Offset]:
        return sorted(self._offsets)

    def path(self, offset: Offset) -> str:
        return f"{self._folder}/{offset_name(offset, SNAPSHOT)}"

    def write(self, offset: Offset, content: bytes) -> None:
        """Write one durably; everything before `offset` is durable. From any thread; then call `on_written`."""
        self._disk.replace_file(self.path(offset), content)

    def on_written(self, offsets: Iterable[Offset]) -> None:
        self._offsets.update(offsets)

    def load(self, *, at_most: Offset, expiration_ms: int) -> tuple[Offset, ProducerStates]:
        """Return the newest state at or before `at_most`, and its offset: later batches must be replayed.

        A damaged snapshot is skipped for an older one; without any, the result is the state of an empty log, at -1.
        """
        for offset in reversed(self.offsets):
            if offset > at_most:
                continue
            content = self._disk.read_file(self.path(offset))
            try:
                states = ProducerStates.decode_snapshot(content or b"", expiration_ms=expiration_ms)
            except ValueError:
                continue
            return offset, states
        return Offset(-1), ProducerStates(expiration_ms=expiration_ms)

    def delete_beyond(self, offset: Offset) -> None:
        """Delete the snapshots after `offset`, durably; call it before a truncation."""
        # List the folder: a sync may have written one without having reported it yet.
        names = map(parse_offset_name, self._disk.list_folder(self._folder))
        there = [name[0] for name in names if name is not None and name[1] == SNAPSHOT]
        self._delete([one for one in there if one > offset])
        self._disk.sync_folder(self._folder)

    def delete_strays(self, bases: Collection[Offset]) -> None:
        """Keep the newest one and those at a segment's base offset; the others belong to earlier stops."""
        keep = {self.newest, *bases}
        self._delete([one for one in self._offsets if one not in keep])

    def forget(self, offset: Offset) -> bool:
        """The file is removed elsewhere; return whether there is one."""
        was_there = offset in self._offsets
        self._offsets.discard(offset)
        return was_there

    def _delete(self, offsets: Iterable[Offset]) -> None:
        for offset in sorted(offsets):
            self._disk.delete(self.path(offset))
            self._offsets.discard(offset)
