"""Translates errors into codes that the request's client handles correctly."""

from respool.model.coordinator_errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidTransactionState,
    NotCoordinator,
    ProducerFenced,
    TransactionAbortable,
)
from respool.model.errors import (
    InvalidProducerEpoch,
    InvalidTopic,
    NotEnoughReplicas,
    RequestError,
    UnknownTopicOrPartition,
)
from respool.model.ids import check_topic_name
from respool.wire.codec import Request

# From these versions on clients take TRANSACTION_ABORTABLE as fatal for the transaction, not for the producer.
ABORTABLE_FROM_PRODUCE_VERSION = 11
ABORTABLE_FROM_OFFSET_COMMIT_VERSION = 4
# To older clients COORDINATOR_LOAD_IN_PROGRESS is fatal; at COORDINATOR_NOT_AVAILABLE they retry.
LOADING_FROM_OFFSET_COMMIT_VERSION = 2

_TRANSIENT = (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
)


def why_unknown(name: str) -> RequestError:
    """Return why no topic has this name: it does not exist, or the name is invalid, so that retries are pointless."""
    try:
        check_topic_name(name)
    except InvalidTopic as error:
        return error
    return UnknownTopicOrPartition(f"there is no topic {name!r}")


def for_version(
    error: RequestError | None, request: Request, *, fenced_code_from: int
) -> RequestError | None:
    """Replace PRODUCER_FENCED by INVALID_PRODUCER_EPOCH for clients older than KIP-588; to them it means the same."""
    if isinstance(error, ProducerFenced) and request.version < fenced_code_from:
        return InvalidProducerEpoch(error.message)
    return error


def is_transient(error: RequestError) -> bool:
    """True if the coordinator may answer differently soon."""
    return isinstance(error, _TRANSIENT)


def to_producer(error: RequestError, *, version: int) -> RequestError:
    """Return the error for Produce when the transaction coordinator refused the verification with `error`.

    The coordinator's own codes are for requests to the coordinator. In a Produce reply, producers treat some of them as
    fatal that are not, and retry others wrongly.
    """
    if is_transient(error):
        # For this code old clients retry without looking for another leader.
        return NotEnoughReplicas(
            f"the transaction coordinator could not verify the partition: {error.message}"
        )
    return _common(error, knows_abortable=version >= ABORTABLE_FROM_PRODUCE_VERSION)


def to_offset_committer(error: RequestError, *, version: int) -> RequestError:
    """Return the error for TxnOffsetCommit, as `to_producer` does for Produce."""
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
