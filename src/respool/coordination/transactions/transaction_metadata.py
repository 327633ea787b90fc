"""The coordinator's state of one transactional id: an immutable value that each record replaces as a whole.

```
            first partition           EndTransaction, or timeout
  Empty -------------------> Ongoing ----------------------------> PrepareCommit | PrepareAbort
    ^                           ^                                         |
    | InitProducerId            | first partition                         | all partitions have markers
    +---------------------------+------------- CompleteCommit | CompleteAbort
```
Prepare is the decision: once its record is committed, the outcome is final.

Epochs. A producer may use epochs up to 32766; 32767 is reserved, so that a producer can always be fenced once more. A
producer that requests the next epoch and loses the reply must be able to repeat the request. For that,
`previous_producer_id` records whose request created the current epoch:

- -1: another producer's, or the coordinator's after a timeout; no request may be repeated;
- the current producer id: its own request with the epoch before the current one;
- the previous producer id: its request with its last epoch; the current epoch is 0.

Kafka keeps this in memory and loses it with the coordinator. Kafka defines the record's field for the last case only,
and ignores the other two values.
"""

from typing import Any, NamedTuple

from respool.coordination.transactions.transaction_requests import (
    NO_PRODUCER_EPOCH,
    TransactionState,
    TransactionVersion,
)
from respool.model.ids import NO_PRODUCER_ID, NO_TIMESTAMP, ProducerId, TopicPartition

PRODUCER_EPOCH_MAX = 2**15 - 1
# The last usable epoch; after it a new producer id is assigned.
LAST_USABLE_EPOCH = PRODUCER_EPOCH_MAX - 1

_PREPARED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


class TransactionMetadata(NamedTuple):
    transactional_id: str
    producer_id: ProducerId
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    # Without duplicates. Invariant: empty in the states Empty and Complete.
    partitions: tuple[TopicPartition, ...] = ()
    updated_at_ms: int = NO_TIMESTAMP
    # The start of the current or last transaction; NO_TIMESTAMP when Empty.
    started_at_ms: int = NO_TIMESTAMP
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    # In Prepare, if the epochs are exhausted: the producer id to use once the markers are written.
    next_producer_id: ProducerId = NO_PRODUCER_ID
    version: TransactionVersion = TransactionVersion.V0

    @property
    def is_prepared(self) -> bool:
        return self.state in _PREPARED

    @property
    def is_idle(self) -> bool:
        return self.state is not TransactionState.ONGOING and self.state not in _PREPARED

    @property
    def due_at_ms(self) -> int:
        """When an open transaction times out, by the clock of the broker that wrote its first record."""
        return self.started_at_ms + self.timeout_ms

    def is_current(self, producer_id: ProducerId, producer_epoch: int) -> bool:
        return (
            producer_id == self.producer_id
            and producer_epoch == self.producer_epoch
            # No producer is ever given that epoch.
            and producer_epoch != PRODUCER_EPOCH_MAX
        )

    def is_next(self, producer_id: ProducerId, producer_epoch: int) -> bool:
        """True if a producer has the id and epoch that become current when the markers are written."""
        return (
            producer_id == self.next_producer_id
            and producer_id != NO_PRODUCER_ID
            and producer_epoch == 0
        )

    def was_bumped_by(self, producer_id: ProducerId, producer_epoch: int) -> bool:
        """True if the producer's own request created the current epoch, so that it may be repeated."""
        if producer_id != self.previous_producer_id or producer_id == NO_PRODUCER_ID:
            return False
        if producer_id == self.producer_id:
            return producer_epoch == self.producer_epoch - 1 and producer_epoch > NO_PRODUCER_EPOCH
        return self.producer_epoch == 0 and producer_epoch >= LAST_USABLE_EPOCH


# -- steps -------------------------------------------------------------------------------------------------------------
# The effect of a request on one transactional id: the new state, if any, and the reply, if it can be sent already.


# The reply waits for the markers of the previous transaction; then the request is decided again.
WAIT = None


class TransactionStep(NamedTuple):
    # None: unchanged.
    transaction: TransactionMetadata | None
    reply: Any
