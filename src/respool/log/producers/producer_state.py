"""What a partition remembers of one producer: its epoch, its last batches, its open transaction."""

from dataclasses import dataclass, field
from typing import NamedTuple

from respool.model.ids import Offset
from respool.records.batch import SEQUENCE_MAX

# Clients keep at most five requests in flight (max.in.flight.requests.per.connection), so a retry is
# of one of the last five batches.
BATCHES_REMEMBERED = 5

NO_SEQUENCE = -1
NO_COORDINATOR_EPOCH = -1
NO_OFFSET = Offset(-1)


class AppendedBatch(NamedTuple):
    """What must be known of a batch to recognise it when it comes again, and to answer as the first time."""

    last_sequence: int
    last_offset: Offset
    # Last minus first: of the offsets, and so of the sequences.
    offset_delta: int
    timestamp: int

    @property
    def base_sequence(self) -> int:
        """The first record's sequence; before 0 came 2^31-1."""
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MAX

    @property
    def base_offset(self) -> Offset:
        return Offset(self.last_offset - self.offset_delta)


@dataclass(slots=True, kw_only=True)
class ProducerState:
    """Owned and changed by `ProducerStates` alone; others only read it.

    Two states are equal when they decide alike; when they were last heard of is left out.
    """

    producer_id: int
    epoch: int
    # Of this epoch only, oldest first, at most BATCHES_REMEMBERED.
    batches: tuple[AppendedBatch, ...] = ()
    # The coordinator that ended this producer's last transaction here, from its marker.
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    # Where the transaction now open began; NO_OFFSET when none is.
    current_txn_first_offset: Offset = NO_OFFSET
    # What must come next. Always follows from `batches`; kept because every append asks for it.
    next_sequence: int = 0
    # When it last wrote: the batch's timestamp, until `expire` has put the broker's clock there.
    active_at_ms: int = field(compare=False)
    # It wrote since `expire` last looked.
    is_fresh: bool = field(default=True, compare=False)

    @property
    def last_offset(self) -> Offset:
        """The last batch's last offset; NO_OFFSET when only a marker is known."""
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def has_open_transaction(self) -> bool:
        return self.current_txn_first_offset >= 0

    def begin_epoch(self, epoch: int) -> None:
        """Sequences start again with an epoch, so older batches can no longer be retried."""
        self.epoch = epoch
        self.batches = ()
        self.next_sequence = 0

    def add(self, batch: AppendedBatch) -> None:
        self.batches = (*self.batches[1 - BATCHES_REMEMBERED :], batch)
        # NO_SEQUENCE, as in batches a coordinator writes, is followed by 0 too.
        self.next_sequence = (batch.last_sequence + 1) & SEQUENCE_MAX

    def find(self, *, base_sequence: int, last_sequence: int) -> AppendedBatch | None:
        for batch in self.batches:
            if batch.last_sequence == last_sequence and batch.base_sequence == base_sequence:
                return batch
        return None
