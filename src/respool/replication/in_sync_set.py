"""The ISR as the store has it, and what a write of ours may have made of it meanwhile.

A leader changes the ISR by a guarded write, one at a time:

```
            propose                   on_image: a newer revision
  resolved ---------> in flight ------------------------------------> resolved
                          |  refused: nothing was written                ^
                          |  unknown: it may have been, or may yet be    | on_image
                          +-----------------> unresolved ----------------+
```
Until it is settled both outcomes are reckoned with: the maximal ISR is all who are in the old one or the new one. After
an unknown outcome even a read that shows the old revision settles nothing, for the write may still be on its way. Then
the key is written again, if need be as it is: only one of the two writes can succeed.
"""

from collections.abc import Iterable

from respool.model.cluster import PartitionImage
from respool.model.ids import BrokerId
from respool.replication.effects import ProposeIsr


class InSyncSet:
    def __init__(self, image: PartitionImage) -> None:
        # What the store had when last heard of.
        self.image = image
        # Everyone who may be in the ISR. Invariant: a superset of the ISR in the store, as long as we lead.
        self.maximal = frozenset(image.isr)
        self._in_flight: ProposeIsr | None = None
        self._needs_image = False
        self._has_unknown = False

    @property
    def may_propose(self) -> bool:
        return self._in_flight is None and not self._needs_image

    @property
    def must_rewrite(self) -> bool:
        """A write of unknown outcome may still come about; another one, of whatever, prevents that."""
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
        """The store has, or had, this; say whether it is news."""
        if image.revision < self.image.revision:
            return False
        is_newer = image.revision > self.image.revision
        if is_newer:
            # Every write under way was guarded by the old revision: it is this one, or it will be refused.
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
    """A write that succeeds only on the revision it was decided on, with joiners registered as known here."""
    return ProposeIsr(image=wanted, joiners=joiners)


def maximal_isr(before: frozenset[BrokerId], proposed: Iterable[BrokerId]) -> frozenset[BrokerId]:
    """Joiners count from the proposal on, leavers until the store has agreed."""
    return before.union(proposed)
