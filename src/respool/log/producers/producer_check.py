"""Checks a batch against its producer's state: sequence, epoch, transaction. Pure."""

from dataclasses import dataclass

from respool.log.producers.producer_state import ProducerState
from respool.log.producers.verification import VerificationGuard
from respool.model.coordinator_errors import InvalidTransactionState, TransactionCoordinatorFenced
from respool.model.errors import InvalidProducerEpoch, OutOfOrderSequence
from respool.model.ids import Offset
from respool.records.batch import BatchHeader
from respool.records.markers import EndTransactionMarker


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateOf:
    """The offsets of a retried batch's first copy, for the reply to the retry."""

    base_offset: Offset
    last_offset: Offset
    timestamp: int


def check_after(
    earlier: ProducerState,
    state: ProducerState | None,
    header: BatchHeader,
    *,
    is_verified: bool,
    guard: VerificationGuard | None,
) -> None:
    """Check a batch whose producer's last batches are in another log: they were appended there until now.

    `state` is what this log knows, which is older. The caller checks that the batch is not a duplicate.
    """
    _check_epoch(earlier, header.producer_epoch)
    if header.is_transactional:
        is_open = (
            state is not None
            and state.epoch == header.producer_epoch
            and state.current_txn_first_offset >= 0
        )
        if not is_open and guard is None:
            raise InvalidTransactionState(_not_open(header))
        if not is_open and not is_verified:
            raise InvalidTransactionState(f"{_not_open(header)}, and its verification is void")
    else:
        for one in (earlier, state):
            if one is not None and one.current_txn_first_offset >= 0:
                _refuse_outside(one)
    if header.base_sequence >= 0:
        _check_sequence(earlier, header)


def check_batch(state: ProducerState, header: BatchHeader) -> DuplicateOf | None:
    """Check a non-transactional batch."""
    if header.producer_epoch == state.epoch:
        # The common case first. (Batches of 2^31 records in total would make it ambiguous.)
        if header.base_sequence == state.next_sequence:
            if state.current_txn_first_offset >= 0:
                _refuse_outside(state)
            return None
        duplicate = _find_duplicate(state, header)
        if duplicate is not None:
            return duplicate
    _check_epoch(state, header.producer_epoch)
    if state.current_txn_first_offset >= 0:
        _refuse_outside(state)
    _check_sequence(state, header)
    return None


def check_transactional(
    state: ProducerState | None,
    header: BatchHeader,
    *,
    is_verified: bool,
    guard: VerificationGuard | None,
) -> DuplicateOf | None:
    """Check a transactional batch: its transaction must be open here, or be verified with the coordinator.

    Batches of the group coordinator have no sequence.
    """
    is_open = False
    if state is not None:
        if header.producer_epoch == state.epoch:
            is_open = state.current_txn_first_offset >= 0
            if is_open and header.base_sequence == state.next_sequence:
                return None
            if header.base_sequence >= 0:
                duplicate = _find_duplicate(state, header)
                if duplicate is not None:
                    return duplicate
        _check_epoch(state, header.producer_epoch)
    if not is_open:
        if guard is None:
            raise InvalidTransactionState(_not_open(header))
        if not is_verified:
            raise InvalidTransactionState(f"{_not_open(header)}, and its verification is void")
        if state is None:
            _check_first(header, guard)
    if state is not None and header.base_sequence >= 0:
        _check_sequence(state, header)
    return None


def check_marker(
    state: ProducerState, marker: EndTransactionMarker, *, needs_newer_epoch: bool
) -> None:
    """Check a transaction marker. With `needs_newer_epoch` its epoch must exceed that of the data."""
    _check_epoch(state, marker.producer_epoch)
    if needs_newer_epoch and marker.producer_epoch == state.epoch:
        raise InvalidProducerEpoch(
            f"producer {state.producer_id} already has epoch {state.epoch}; this marker is older"
        )
    if marker.coordinator_epoch < state.coordinator_epoch:
        raise TransactionCoordinatorFenced(
            f"producer {state.producer_id}: coordinator epoch {marker.coordinator_epoch}, "
            f"there was {state.coordinator_epoch}"
        )


def _not_open(header: BatchHeader) -> str:
    return (
        f"producer {header.producer_id} epoch {header.producer_epoch} has no open transaction here"
    )


def _find_duplicate(state: ProducerState, header: BatchHeader) -> DuplicateOf | None:
    if header.base_sequence == state.next_sequence:
        return None
    batch = state.find(base_sequence=header.base_sequence, last_sequence=header.last_sequence)
    if batch is None:
        return None
    return DuplicateOf(
        base_offset=batch.base_offset, last_offset=batch.last_offset, timestamp=batch.timestamp
    )


def _check_epoch(state: ProducerState, epoch: int) -> None:
    if epoch < state.epoch:
        raise InvalidProducerEpoch(
            f"producer {state.producer_id} has epoch {state.epoch}, the batch {epoch}"
        )


def _check_sequence(state: ProducerState, header: BatchHeader) -> None:
    if header.producer_epoch == state.epoch:
        if header.base_sequence != state.next_sequence:
            raise OutOfOrderSequence(
                f"producer {header.producer_id} epoch {header.producer_epoch} sent sequences "
                f"{header.base_sequence} to {header.last_sequence}, expected {state.next_sequence} next"
            )
    elif header.base_sequence != 0:
        raise OutOfOrderSequence(
            f"producer {header.producer_id} begins epoch {header.producer_epoch} (after {state.epoch}) "
            f"with sequence {header.base_sequence}, expected 0"
        )


def _check_first(header: BatchHeader, guard: VerificationGuard) -> None:
    """The first batch of an unknown producer may have any sequence, but not one after a batch of its own that is
    pending.

    For a known producer its state decides; a late rejected batch has no influence.
    """
    if header.base_sequence > guard.lowest_sequence:
        raise OutOfOrderSequence(
            f"producer {header.producer_id} begins a transaction with sequence {header.base_sequence}, "
            f"but {guard.lowest_sequence} is pending"
        )


def _refuse_outside(state: ProducerState) -> None:
    raise InvalidTransactionState(
        f"producer {state.producer_id} has an open transaction here since offset "
        f"{state.current_txn_first_offset}, and the batch is not part of it"
    )
