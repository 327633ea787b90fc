"""What the coordinator knows of one transactional id: a value, replaced as a whole by each record of it.

```
            first partition           EndTransaction, or too late
  Empty -------------------> Ongoing ----------------------------> PrepareCommit | PrepareAbort
    ^                           ^                                         |
    | InitProducerId            | first partition                         | markers are in all partitions
    +---------------------------+------------- CompleteCommit | CompleteAbort
```
Prepare is the decision: once its record is committed, the outcome stands.

Epochs. A producer may use an epoch up to 32766; 32767 is kept free, so that it can always be fenced by one more. A
producer that asks for the next epoch and loses the answer must be able to ask again. For that, `previous_producer_id`
says whose request made the current epoch:

- nobody's to repeat (-1): another producer's, or the coordinator's when time was up;
- this producer's own: then with the epoch before the current one;
- that of the producer id before: then with its last epoch, and the current epoch is 0.

Kafka keeps this in memory and forgets it with the coordinator. The record's field is meant for the last case only, but
to Kafka the other two mean nothing there.
"""

from typing import Any, NamedTuple

from respool.coordination.transactions.transaction_requests import (
    NO_PRODUCER_EPOCH,
    TransactionState,
    TransactionVersion,
)
from respool.model.ids import NO_PRODUCER_ID, NO_TIMESTAMP, ProducerId, TopicPartition

PRODUCER_EPOCH_MAX = 2**15 - 1
# With this one a producer may still work; the next one after it comes with a new producer id.
LAST_USABLE_EPOCH = PRODUCER_EPOCH_MAX - 1

_PREPARED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


class TransactionMetadata(NamedTuple):
    transactional_id: str
    producer_id: ProducerId
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    # Without repetition. Invariant: none when Empty or complete.
    partitions: tuple[TopicPartition, ...] = ()
    updated_at_ms: int = NO_TIMESTAMP
    # Of the current or last transaction; NO_TIMESTAMP when Empty.
    started_at_ms: int = NO_TIMESTAMP
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    # In Prepare, when the epochs have run out: what the producer goes on with once the markers are written.
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
        """When an open transaction is aborted, by the clock of who wrote its first record."""
        return self.started_at_ms + self.timeout_ms

    def is_current(self, producer_id: ProducerId, producer_epoch: int) -> bool:
        return (
            producer_id == self.producer_id
            and producer_epoch == self.producer_epoch
            # Nobody was ever given that one.
            and producer_epoch != PRODUCER_EPOCH_MAX
        )

    def is_next(self, producer_id: ProducerId, producer_epoch: int) -> bool:
        """Whether a producer goes by what it will be once the markers are written."""
        return (
            producer_id == self.next_producer_id
            and producer_id != NO_PRODUCER_ID
            and producer_epoch == 0
        )

    def was_bumped_by(self, producer_id: ProducerId, producer_epoch: int) -> bool:
        """Whether the producer's own request made the current epoch, so that it may repeat it."""
        if producer_id != self.previous_producer_id or producer_id == NO_PRODUCER_ID:
            return False
        if producer_id == self.producer_id:
            return producer_epoch == self.producer_epoch - 1 and producer_epoch > NO_PRODUCER_EPOCH
        return self.producer_epoch == 0 and producer_epoch >= LAST_USABLE_EPOCH


# -- steps -------------------------------------------------------------------------------------------------------------
# What a request does to one transactional id: the id's new state, if any, and the answer, if it can be given yet.


# The answer follows when the markers of the transaction before are written; the request is decided anew then.
WAIT = None


class Step(NamedTuple):
    # None: it stays as it is.
    transaction: TransactionMetadata | None
    reply: Any
