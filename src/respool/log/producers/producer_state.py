"""The state of one producer in a partition: epoch, latest batches, open transaction."""

from dataclasses import dataclass, field
from typing import NamedTuple

from respool.model.ids import NO_TIMESTAMP, Offset
from respool.records.batch import SEQUENCE_MAX

# Clients have at most five requests in flight (max.in.flight.requests.per.connection), so a retry repeats one of the
# last five batches.
BATCHES_REMEMBERED = 5

NO_SEQUENCE = -1
NO_COORDINATOR_EPOCH = -1
NO_OFFSET = Offset(-1)


class AppendedBatch(NamedTuple):
    """Identifies a retried batch, and has the offsets for the reply."""

    last_sequence: int
    last_offset: Offset
    # Last minus first offset, which is also last minus first sequence.
    offset_delta: int
    timestamp: int

    @property
    def base_sequence(self) -> int:
        """The first record's sequence; 0 follows 2^31-1."""
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MAX

    @property
    def base_offset(self) -> Offset:
        return Offset(self.last_offset - self.offset_delta)


@dataclass(slots=True, kw_only=True)
class ProducerState:
    """Owned and changed by `ProducerStates` only; others read it.

    States are equal if they lead to the same decisions; times of activity are not compared.
    """

    producer_id: int
    epoch: int
    # Batches of this epoch, oldest first, at most BATCHES_REMEMBERED.
    batches: tuple[AppendedBatch, ...] = ()
    # Epoch of the coordinator that wrote this producer's last marker here.
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    # First offset of the open transaction; NO_OFFSET if there is none.
    current_txn_first_offset: Offset = NO_OFFSET
    # The next expected sequence. Always follows from `batches`; cached because every append needs it.
    next_sequence: int = 0
    # The last write: the batch's timestamp, until `expire` replaces it with the broker's time.
    active_at_ms: int = field(compare=False)
    # The timestamp of its last batch or marker, as DescribeProducers shows it.
    last_timestamp: int = field(default=NO_TIMESTAMP, compare=False)
    # True if it wrote since the last `expire`.
    is_fresh: bool = field(default=True, compare=False)

    @property
    def last_offset(self) -> Offset:
        """The last offset of the last batch; NO_OFFSET if only a marker is known."""
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def has_open_transaction(self) -> bool:
        return self.current_txn_first_offset >= 0

    def begin_epoch(self, epoch: int) -> None:
        """Sequences restart with an epoch, so earlier batches cannot be retried."""
        self.epoch = epoch
        self.batches = ()
        self.next_sequence = 0

    def add(self, batch: AppendedBatch) -> None:
        self.batches = (*self.batches[1 - BATCHES_REMEMBERED :], batch)
        # NO_SEQUENCE, in coordinators' batches, is followed by 0 too.
        self.next_sequence = (batch.last_sequence + 1) & SEQUENCE_MAX

    def is_later_than(self, other: "ProducerState") -> bool:
        """True if this knows later batches than `other`: of the same producer and partition, in another log.

        A state without batches knows only a marker of its epoch.
        """
        if self.epoch != other.epoch or not self.batches or not other.batches:
            return (self.epoch, bool(self.batches)) > (other.epoch, bool(other.batches))
        # 0 follows 2^31-1.
        ahead = (self.next_sequence - other.next_sequence) & SEQUENCE_MAX
        return 0 < ahead <= SEQUENCE_MAX // 2

    def find(self, *, base_sequence: int, last_sequence: int) -> AppendedBatch | None:
        for batch in self.batches:
            if batch.last_sequence == last_sequence and batch.base_sequence == base_sequence:
                return batch
        return None
