"""The ISR as it is in the store, and as a write in flight may have changed it.

A leader changes the ISR by guarded writes, one at a time:

```
            propose                   on_image: a newer revision
  resolved ---------> in flight ------------------------------------> resolved
                          |  refused: nothing was written                ^
                          |  unknown: it may have been, or may yet be    | on_image
                          +-----------------> unresolved ----------------+
```
Until a write is resolved, both outcomes count: the maximal ISR is the union of the old and the new one. After an
unknown outcome, a read that shows the old revision resolves nothing, because the write may still arrive. Then the key
is written again, unchanged if necessary: only one of the two writes can succeed.
"""

from collections.abc import Iterable

from respool.model.cluster import PartitionImage
from respool.model.ids import BrokerId
from respool.replication.effects import ProposeIsr


class InSyncSet:
    def __init__(self, image: PartitionImage) -> None:
        # The last known state in the metadata store.
        self.image = image
        # All replicas that may be in the ISR. Invariant: while this broker leads, a superset of the ISR in the store.
        self.maximal = frozenset(image.isr)
        self._in_flight: ProposeIsr | None = None
        self._needs_image = False
        self._has_unknown = False

    @property
    def may_propose(self) -> bool:
        return self._in_flight is None and not self._needs_image

    @property
    def must_rewrite(self) -> bool:
        """True if a write with an unknown outcome may still arrive; any other write of the key prevents that."""
        return self._has_unknown

    def propose(
        self, wanted: PartitionImage, *, joiners: tuple[tuple[BrokerId, int], ...]
    ) -> ProposeIsr:
        assert self.may_propose
        assert wanted.revision == self.image.revision
        self._in_flight = guarded_proposal(wanted, joiners)
        self.maximal = maximal_isr(self.maximal, wanted.isr)
        return self._in_flight

    def on_refused(self, proposal: ProposeIsr) -> None:
        if proposal is self._in_flight:
            self._in_flight = None
            self._needs_image = True

    def on_unknown(self, proposal: ProposeIsr) -> None:
        if proposal is not self._in_flight:
            return
        self._in_flight = None
        self._needs_image = True
        self._has_unknown = True

    def on_image(self, image: PartitionImage) -> bool:
        """Apply a current or former state of the store; return True if it is newer than the known one."""
        if image.revision < self.image.revision:
            return False
        is_newer = image.revision > self.image.revision
        if is_newer:
            # A write in flight was guarded by the old revision: either this is its result, or it will be rejected.
            self.image = image
            self._in_flight = None
            self._has_unknown = False
        if self._in_flight is None:
            self._needs_image = False
            if not self._has_unknown:
                self.maximal = frozenset(self.image.isr)
        return is_newer


def guarded_proposal(
    wanted: PartitionImage, joiners: tuple[tuple[BrokerId, int], ...]
) -> ProposeIsr:
    """A write that only succeeds if the key's revision and the joiners' registrations are still those known here."""
    return ProposeIsr(image=wanted, joiners=joiners)


def maximal_isr(before: frozenset[BrokerId], proposed: Iterable[BrokerId]) -> frozenset[BrokerId]:
    """Joiners count from the proposal on; leavers count until the store has accepted it."""
    return before.union(proposed)
