"""Which transactions keep readers of committed records back, and from where on.

```
 log_start            first open                     high_watermark   log_end
     |-------------------|---- some of this will be aborted ---|---------|
                         last stable offset
```
A transaction keeps them back until its marker is committed. One that has ended, and whose marker a power cut or another
leader could still take back, counts like an open one: what readers were told must stay true.
"""

from collections import OrderedDict
from heapq import heapify, heappop, heappush

from respool.model.ids import Offset


class OpenTransactions:
    __slots__ = ("_ended", "_open", "first_unstable")

    def __init__(self) -> None:
        # The first offset of each producer's transaction. Transactions begin at the log's end, so in this order.
        self._open: OrderedDict[int, Offset] = OrderedDict()
        # First offset and marker's offset of those that have ended, the lowest first offset on top. One whose
        # marker is committed may lie below the top for a while; it matters to nobody there.
        self._ended: list[tuple[Offset, Offset]] = []
        # No transaction that began before this offset is undecided; None when there is none at all.
        self.first_unstable: Offset | None = None

    def begin(self, producer_id: int, first_offset: Offset) -> None:
        self._open[producer_id] = first_offset
        if self.first_unstable is None:
            self.first_unstable = first_offset

    def __contains__(self, producer_id: object) -> bool:
        """Whether the producer has one open."""
        return producer_id in self._open

    def end(self, producer_id: int, marker_offset: Offset) -> None:
        """A marker was appended for the transaction that is open."""
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
        """Up to where all is decided once this producer's transaction ends with that marker, and that is committed."""
        for other, first_offset in self._open.items():
            if other != producer_id:
                return first_offset
        return Offset(marker_offset + 1)

    def ended_before(self, offset: Offset) -> list[tuple[Offset, Offset]]:
        """Those whose markers lie before it and were not committed yet."""
        return [one for one in self._ended if one[1] < offset]

    def keep_back_for(self, ended: list[tuple[Offset, Offset]]) -> None:
        """Know of these, which were `ended_before` the log was cut."""
        self._ended = ended
        heapify(self._ended)
        self._find_first()

    def _find_first(self) -> None:
        first = next(iter(self._open.values()), None)
        if self._ended and (first is None or self._ended[0][0] < first):
            first = self._ended[0][0]
        self.first_unstable = first
