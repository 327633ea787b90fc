"""Verifies that a transaction is open at its coordinator before its first batch is appended (KIP-890).

    guard = log.begin_verification(batch.header)     # None: the transaction is open here, nothing to verify
    ...                                              # ask the coordinator
    log.append(batch, ..., guard=guard)              # accepted only if the transaction has not ended meanwhile

Without it, a batch delayed until after its transaction's end would start a transaction that never ends. A guard is
valid for one transaction:

1. A batch of transaction 1 is delayed: it has its guard, the coordinator has confirmed.   2. Transaction 1 is aborted.
3. The same producer begins transaction 2 and gets another guard.   4. The delayed batch arrives.

The marker of step 2 invalidated the first guard, so the batch is rejected. A repeated marker does the same to a batch
of the open transaction. In version 2, where the epoch tells both apart, the batch may then be verified again.
"""

from collections import OrderedDict

from respool.records.batch import BatchHeader

# About 460 bytes each; clients may invent producer ids, but then most guards are discarded at once.
VERIFICATIONS_MAX = 10_000
# A producer has one epoch at a time; its successor may verify at the same time.
EPOCHS_MAX = 4


class VerificationGuard:
    """Compared by identity."""

    __slots__ = ("lowest_sequence", "producer_epoch", "producer_id", "requested_at_ms", "requests")

    def __init__(self, header: BatchHeader, *, now_ms: int) -> None:
        self.producer_id = header.producer_id
        self.producer_epoch = header.producer_epoch
        # Several batches may wait for one verification. For an unknown producer, this sequence must come first.
        self.lowest_sequence = header.base_sequence
        self.requested_at_ms = now_ms
        # How many requests wait for the coordinator with this guard.
        self.requests = 0


class Verifications:
    """The pending verifications of one partition.

    Each epoch of a producer has its own: requests with an invented epoch must not disturb the real one. Only the
    coordinator knows which is real.
    """

    def __init__(self, *, verifications_max: int = VERIFICATIONS_MAX) -> None:
        # By producer, oldest first, and by epoch.
        self._guards: OrderedDict[int, dict[int, VerificationGuard]] = OrderedDict()
        self._max = verifications_max

    def __len__(self) -> int:
        return sum(map(len, self._guards.values()))

    def begin(self, header: BatchHeader, *, now_ms: int) -> VerificationGuard:
        """Return the guard for this producer's transaction, shared by all requests before it begins or ends."""
        guards = self._guards.get(header.producer_id)
        if guards is None:
            if len(self._guards) >= self._max:
                self._guards.popitem(last=False)
            guards = self._guards[header.producer_id] = {}
        guard = guards.get(header.producer_epoch)
        if guard is None:
            if len(guards) >= EPOCHS_MAX:
                del guards[next(iter(guards))]
            guard = guards[header.producer_epoch] = VerificationGuard(header, now_ms=now_ms)
        guard.lowest_sequence = min(guard.lowest_sequence, header.base_sequence)
        guard.requests += 1
        return guard

    def cancel(self, guard: VerificationGuard) -> None:
        """A request was rejected by the coordinator. With its last request the guard is removed."""
        guard.requests -= 1
        guards = self._guards.get(guard.producer_id)
        if guard.requests > 0 or guards is None or guards.get(guard.producer_epoch) is not guard:
            return
        del guards[guard.producer_epoch]
        if not guards:
            del self._guards[guard.producer_id]

    def is_current(self, guard: VerificationGuard | None, header: BatchHeader) -> bool:
        return (
            guard is not None
            and guard.producer_epoch == header.producer_epoch
            and self._guards.get(header.producer_id, {}).get(header.producer_epoch) is guard
        )

    def end(self, producer_id: int) -> None:
        """The transaction has begun here, or has ended: earlier guards are invalid."""
        if self._guards:
            self._guards.pop(producer_id, None)

    def expire(self, before_ms: int) -> None:
        """Remove verifications whose batch never came."""
        while self._guards:
            oldest = next(iter(self._guards.values()))
            if any(guard.requested_at_ms >= before_ms for guard in oldest.values()):
                break
            self._guards.popitem(last=False)
