"""The `.snapshot` files of one log: what its producers were at an offset, so that not every header is read again.

One is written at the base of each new segment and at a clean stop, **after** everything before its offset is on the
disk. So a snapshot's name alone proves that the log below it was synced, and recovery relies on that: before a log is
cut back to an offset, the snapshots beyond it must be gone for good.
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
        # One that a sync under way has written is not among them yet.
        self._offsets = set(offsets)

    @property
    def newest(self) -> Offset:
        """The offset of the newest; -1 when there is none."""
        return max(self._offsets, default=Offset(-1))

    def newest_until(self, offset: Offset) -> Offset:
        """The offset of the newest not after that one; -1 when there is none."""
        return max((one for one in self._offsets if one <= offset), default=Offset(-1))

    @property
    def offsets(self) -> list[Offset]:
        return sorted(self._offsets)

    def path(self, offset: Offset) -> str:
        return f"{self._folder}/{offset_name(offset, SNAPSHOT)}"

    def write(self, offset: Offset, content: bytes) -> None:
        """Write one, durably. All before `offset` is on the disk. From any thread; then tell `on_written`."""
        self._disk.replace_file(self.path(offset), content)

    def on_written(self, offsets: Iterable[Offset]) -> None:
        self._offsets.update(offsets)

    def load(self, *, at_most: Offset, expiration_ms: int) -> tuple[Offset, ProducerStates]:
        """The newest state not after `at_most`, and its offset: what comes after it must be replayed.

        A damaged one is passed over for an older one; without any, it is the state of an empty log, at -1.
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
        """Forget those after `offset`; durably, before anything there is cut off."""
        # From the folder: a sync may have written one and not have reported it yet.
        names = map(parse_offset_name, self._disk.list_folder(self._folder))
        there = [name[0] for name in names if name is not None and name[1] == SNAPSHOT]
        self._delete([one for one in there if one > offset])
        self._disk.sync_folder(self._folder)

    def delete_strays(self, bases: Collection[Offset]) -> None:
        """Keep the newest and those at a segment's base; the others were for a stop that is over."""
        keep = {self.newest, *bases}
        self._delete([one for one in self._offsets if one not in keep])

    def forget(self, offset: Offset) -> bool:
        """Its file is taken away by someone else; say whether there is one."""
        was_there = offset in self._offsets
        self._offsets.discard(offset)
        return was_there

    def _delete(self, offsets: Iterable[Offset]) -> None:
        for offset in sorted(offsets):
            self._disk.delete(self.path(offset))
            self._offsets.discard(offset)
