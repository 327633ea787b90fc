"""Why a transaction may not write to a partition, in words that its client understands.

The coordinator's own words are for requests to it. A producer that hears them from Produce or TxnOffsetCommit would
take some for fatal that are not, and retry others wrongly.
"""

from respool.model.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidTransactionState,
    NotCoordinator,
    NotEnoughReplicas,
    ProducerFenced,
    RequestError,
    TransactionAbortable,
)

# From these versions on clients know that such an error ends the transaction and not the producer.
ABORTABLE_FROM_PRODUCE_VERSION = 11
ABORTABLE_FROM_OFFSET_COMMIT_VERSION = 4
# From this version on; those before it give up when they hear that something is loaded, and not when nobody is there.
LOADING_FROM_OFFSET_COMMIT_VERSION = 2

_PASSING = (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
)


def is_passing(error: RequestError) -> bool:
    """Whether the coordinator may say something else soon."""
    return isinstance(error, _PASSING)


def to_producer(error: RequestError, *, version: int) -> RequestError:
    if is_passing(error):
        # Old clients retry on this one, and do not look for another leader first.
        return NotEnoughReplicas(
            f"whether the partition is part of the transaction cannot be told now: {error.message}"
        )
    return _common(error, knows_abortable=version >= ABORTABLE_FROM_PRODUCE_VERSION)


def to_offset_committer(error: RequestError, *, version: int) -> RequestError:
    if (
        isinstance(error, CoordinatorLoadInProgress)
        and version < LOADING_FROM_OFFSET_COMMIT_VERSION
    ):
        return CoordinatorNotAvailable(error.message)
    return _common(error, knows_abortable=version >= ABORTABLE_FROM_OFFSET_COMMIT_VERSION)


def _common(error: RequestError, *, knows_abortable: bool) -> RequestError:
    if isinstance(error, ProducerFenced):
        return InvalidProducerEpoch(error.message)
    if isinstance(error, TransactionAbortable) and not knows_abortable:
        return InvalidTransactionState(error.message)
    return error
