"""The transactions that hold back the last stable offset.

```
 log_start            first open                     high_watermark   log_end
     |-------------------|---- some of this will be aborted ---|---------|
                         last stable offset
```
A transaction counts until its marker is committed. While a power cut or a new leader could still remove the marker, an
ended transaction counts like an open one: readers must not see an outcome that may change.
"""

from collections import OrderedDict
from heapq import heapify, heappop, heappush

from respool.model.ids import Offset


class OpenTransactions:
    __slots__ = ("_ended", "_open", "first_unstable")

    def __init__(self) -> None:
        # The first offset of each open transaction, by producer. Transactions start at the log end, so the order is
        # ascending.
        self._open: OrderedDict[int, Offset] = OrderedDict()
        # A heap of (first offset, marker offset) of ended transactions. Entries whose marker is committed may remain
        # below the top, where they have no effect.
        self._ended: list[tuple[Offset, Offset]] = []
        # The first offset of the earliest undecided transaction; None if there is none.
        self.first_unstable: Offset | None = None

    def begin(self, producer_id: int, first_offset: Offset) -> None:
        assert producer_id not in self._open, f"producer {producer_id} has an open transaction"
        self._open[producer_id] = first_offset
        if self.first_unstable is None:
            self.first_unstable = first_offset

    def __contains__(self, producer_id: object) -> bool:
        """True if the producer has an open transaction."""
        return producer_id in self._open

    def end(self, producer_id: int, marker_offset: Offset) -> None:
        """A marker was appended for the open transaction."""
        heappush(self._ended, (self._open.pop(producer_id), marker_offset))

    def on_high_watermark(self, high_watermark: Offset) -> None:
        """Markers before it are committed."""
        ended = self._ended
        if not ended:
            return
        while ended and ended[0][1] < high_watermark:
            heappop(ended)
        self._find_first()

    def last_stable_without(self, producer_id: int, *, marker_offset: Offset) -> Offset:
        """The last stable offset once this producer's transaction has ended with that marker and the marker is
        committed.
        """
        for other, first_offset in self._open.items():
            if other != producer_id:
                return first_offset
        return Offset(marker_offset + 1)

    def markers_before(self, offset: Offset) -> list[tuple[Offset, Offset]]:
        """The ended transactions whose uncommitted markers are before the offset."""
        return [one for one in self._ended if one[1] < offset]

    def restore_ended(self, ended: list[tuple[Offset, Offset]]) -> None:
        """Restore these transactions, taken from `markers_before` when the log was truncated."""
        self._ended = ended
        heapify(self._ended)
        self._find_first()

    def _find_first(self) -> None:
        first = next(iter(self._open.values()), None)
        if self._ended and (first is None or self._ended[0][0] < first):
            first = self._ended[0][0]
        self.first_unstable = first
