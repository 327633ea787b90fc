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

# Each takes some 460 bytes, and whoever asks may invent producer ids; most are given back at once then.
VERIFICATIONS_MAX = 10_000
# A producer has one epoch at a time, and a successor may ask while the last one does.
EPOCHS_MAX = 4


class VerificationGuard:
    """Equal to nothing but itself."""

    __slots__ = ("asked_at_ms", "askers", "lowest_sequence", "producer_epoch", "producer_id")

    def __init__(self, header: BatchHeader, *, now_ms: int) -> None:
        self.producer_id = header.producer_id
        self.producer_epoch = header.producer_epoch
        # Several batches may wait for the same answer. Of a producer not known here, this one must come first.
        self.lowest_sequence = header.base_sequence
        self.asked_at_ms = now_ms
        # How many wait for the coordinator's word with it.
        self.askers = 0


class Verifications:
    """Those under way in one partition.

    Each epoch of a producer has its own: anybody may ask under an epoch that does not exist, and must not get in the
    way of the one that does. Which of them it is, the coordinator knows.
    """

    def __init__(self, *, verifications_max: int = VERIFICATIONS_MAX) -> None:
        # By producer, the longest under way first, and by epoch.
        self._guards: OrderedDict[int, dict[int, VerificationGuard]] = OrderedDict()
        self._max = verifications_max

    def __len__(self) -> int:
        return sum(map(len, self._guards.values()))

    def begin(self, header: BatchHeader, *, now_ms: int) -> VerificationGuard:
        """The guard for this producer's transaction, shared by all who ask before it begins or ends."""
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
        guard.askers += 1
        return guard

    def give_back(self, guard: VerificationGuard) -> None:
        """One who asked for it will not come with it: the coordinator said no. With the last of them it is gone."""
        guard.askers -= 1
        guards = self._guards.get(guard.producer_id)
        if guard.askers > 0 or guards is None or guards.get(guard.producer_epoch) is not guard:
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
        """The transaction has begun here, or ended anywhere: guards given before are void."""
        if self._guards:
            self._guards.pop(producer_id, None)

    def expire(self, before_ms: int) -> None:
        """Forget those that nobody came back with."""
        while self._guards:
            oldest = next(iter(self._guards.values()))
            if any(guard.asked_at_ms >= before_ms for guard in oldest.values()):
                break
            self._guards.popitem(last=False)
