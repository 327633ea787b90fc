"""Which batches of transactions a compaction can do without: aborted data at once, a marker when its data is gone.

Fed with every transactional batch and every marker of the segments, in order. It must know beforehand which
transactions were aborted: the marker that says so comes after the data, and may lie beyond what is compacted.
"""

from collections import deque
from collections.abc import Iterable

from respool.log.index.transaction_index import AbortedTransaction
from respool.model.ids import Offset
from respool.records.batch import BatchHeader


class CleanedTransactions:
    def __init__(self, aborted: Iterable[AbortedTransaction], *, begin: Offset) -> None:
        """`begin` is where the feeding begins; what ended before is not waited for."""
        reaching = (one for one in aborted if one.last_offset >= begin)
        self._to_come = deque(sorted(reaching, key=lambda one: one.first_offset))
        # By producer: the aborted transaction that is open here, and whether any of its data was met.
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        # Producers whose open transaction will be committed and of which data was met.
        self._committed: set[int] = set()
        self._still_needed: list[AbortedTransaction] = []

    def is_aborted(self, header: BatchHeader) -> bool:
        """Was this batch of data aborted? Then nobody may see its records, and they may go."""
        self._go_to(header.last_offset)
        open_here = self._aborted.get(header.producer_id)
        if open_here is None:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = (open_here[0], True)
        return True

    def is_marker_needed(self, header: BatchHeader, *, is_commit: bool) -> bool:
        """Does this marker end a transaction of which data was met?"""
        self._go_to(header.last_offset)
        if is_commit:
            had_data = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return had_data
        aborted, had_data = self._aborted.pop(header.producer_id, (None, False))
        if had_data and aborted is not None:
            self._still_needed.append(aborted)
        return had_data

    def take_still_needed(self) -> list[AbortedTransaction]:
        """The aborted transactions whose markers were met since this was asked last, and which readers must know of.

        Of the others no data is left. Without their markers, which may go, they would hide what follows them.
        """
        needed, self._still_needed = self._still_needed, []
        return needed

    def _go_to(self, offset: Offset) -> None:
        while self._to_come and self._to_come[0].first_offset <= offset:
            begun = self._to_come.popleft()
            self._aborted.setdefault(begun.producer_id, (begun, False))
