"""Proof that a transaction is open at its coordinator, before its first batch may enter a partition (KIP-890).

    guard = log.begin_verification(batch.header)     # None: the transaction is open here, no proof is needed
    ...                                              # ask the coordinator
    log.append(batch, ..., guard=guard)              # taken only if nothing ended the transaction meanwhile

Without it, a batch that was delayed until after its transaction's end would begin one that nobody ever ends. A guard is
good for one transaction and no other:

1. A batch of transaction 1 is delayed: it has its guard, the coordinator has said yes.   2. Transaction 1 is aborted.
3. The same producer begins transaction 2 and asks for a guard.   4. The delayed batch arrives.

The marker of step 2 made the first guard void, and the one of step 3 is another: so the batch is refused.
"""

from collections import OrderedDict

from respool.records.batch import BatchHeader

# Each takes some 200 bytes, and whoever asks may invent producer ids.
VERIFICATIONS_MAX = 10_000


class VerificationGuard:
    """Equal to nothing but itself."""

    __slots__ = ("asked_at_ms", "lowest_sequence", "producer_epoch", "producer_id")

    def __init__(self, header: BatchHeader, *, now_ms: int) -> None:
        self.producer_id = header.producer_id
        self.producer_epoch = header.producer_epoch
        # Several batches may wait for the same answer. Of a producer not known here, this one must come first.
        self.lowest_sequence = header.base_sequence
        self.asked_at_ms = now_ms


class Verifications:
    """Those under way in one partition, by producer."""

    def __init__(self, *, verifications_max: int = VERIFICATIONS_MAX) -> None:
        # The longest under way first.
        self._guards: OrderedDict[int, VerificationGuard] = OrderedDict()
        self._max = verifications_max

    def __len__(self) -> int:
        return len(self._guards)

    def begin(self, header: BatchHeader, *, now_ms: int) -> VerificationGuard:
        """The guard for this producer's transaction, shared by all who ask before it begins or ends."""
        guard = self._guards.get(header.producer_id)
        if guard is not None:
            if guard.producer_epoch == header.producer_epoch:
                guard.lowest_sequence = min(guard.lowest_sequence, header.base_sequence)
                return guard
            if guard.producer_epoch > header.producer_epoch:
                # A zombie may ask, and gets one that opens nothing.
                return VerificationGuard(header, now_ms=now_ms)
            del self._guards[header.producer_id]
        elif len(self._guards) >= self._max:
            self._guards.popitem(last=False)
        guard = self._guards[header.producer_id] = VerificationGuard(header, now_ms=now_ms)
        return guard

    def is_current(self, guard: VerificationGuard | None, header: BatchHeader) -> bool:
        return (
            guard is not None
            and self._guards.get(header.producer_id) is guard
            and guard.producer_epoch == header.producer_epoch
        )

    def end(self, producer_id: int) -> None:
        """The transaction has begun here, or ended anywhere: guards given before are void."""
        if self._guards:
            self._guards.pop(producer_id, None)

    def expire(self, before_ms: int) -> None:
        """Forget those that nobody came back with."""
        while self._guards and next(iter(self._guards.values())).asked_at_ms < before_ms:
            self._guards.popitem(last=False)
