"""The latest changes of a metadata store, by revision, for watchers."""

from collections.abc import Sequence

from respool.ports.metadata_store import CompactedRevision, KeyChanged


class ChangeHistory:
    """Bounded: the oldest revisions are dropped first. The latest one is kept, whatever its size."""

    def __init__(self, *, revision: int, changes_max: int, bytes_max: int) -> None:
        # The newest revision, and the newest dropped one; all revisions between them are kept.
        self.revision = revision
        self.compacted = revision
        self._by_revision: dict[int, Sequence[KeyChanged]] = {}
        self._changes_left = changes_max
        self._bytes_left = bytes_max

    def add(self, changes: Sequence[KeyChanged]) -> None:
        """Add the changes of the next revision."""
        self.revision += 1
        assert changes
        assert all(change.revision == self.revision for change in changes)
        self._by_revision[self.revision] = changes
        self._changes_left -= len(changes)
        self._bytes_left -= _size(changes)
        while (self._changes_left < 0 or self._bytes_left < 0) and len(self._by_revision) > 1:
            self._forget_oldest()

    def forget_up_to(self, revision: int) -> None:
        """Drop changes up to this revision: reading them raises CompactedRevision."""
        while self.compacted < min(revision, self.revision):
            self._forget_oldest()

    def at(self, revision: int) -> Sequence[KeyChanged]:
        """The changes of this revision, in write order.

        Raises:
            CompactedRevision: they were dropped.
        """
        assert revision <= self.revision
        if revision <= self.compacted:
            raise CompactedRevision(
                f"changes up to revision {self.compacted} were dropped, requested: {revision}"
            )
        return self._by_revision[revision]

    def _forget_oldest(self) -> None:
        self.compacted += 1
        forgotten = self._by_revision.pop(self.compacted)
        self._changes_left += len(forgotten)
        self._bytes_left += _size(forgotten)


def _size(changes: Sequence[KeyChanged]) -> int:
    return sum(len(change.key) + len(change.value or b"") for change in changes)
