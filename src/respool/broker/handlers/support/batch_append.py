"""Appends an admitted batch of a Produce request, or refuses it."""

from respool.broker.handlers.support.batch_stages import (
    Admitted,
    AdmittedMirrored,
    Refused,
    Written,
)
from respool.broker.partitions.refused_batches import RefusedBatches
from respool.model.coordinator_errors import InvalidTransactionState
from respool.model.errors import NotEnoughReplicas, NotLeader, OutOfOrderSequence, RequestError
from respool.model.ids import Offset
from respool.records.batch import BatchHeader

ACKS_ALL = -1


def append_admitted(
    admitted: Admitted | AdmittedMirrored, acks: int, now_ms: int
) -> Written | Refused:
    if isinstance(admitted, AdmittedMirrored):
        return _append_mirrored(admitted, acks, now_ms)
    if admitted.succession is not None or admitted.partition.has_succession:
        return _append_to_successor(admitted, acks, now_ms)
    return _append(admitted, acks, now_ms)


def _append(admitted: Admitted, acks: int, now_ms: int) -> Written | Refused:
    partition, header = admitted.partition, admitted.batch.header
    try:
        if acks == ACKS_ALL:
            partition.role.leading().check_writable()
        if partition.refused and header.producer_id not in partition.log.producers:
            # The log would take it for the producer's first batch and could never accept the refused one after it.
            missing = partition.refused.error_for_gap(header, now_ms=now_ms)
            if missing is not None:
                return Refused(missing)
        appended = partition.append(admitted.batch, now_ms=now_ms, guard=admitted.guard)
    except RequestError as error:
        if isinstance(error, InvalidTransactionState) and admitted.is_implicit:
            # Its transaction was open or verified when the batch was admitted, and a marker or a change of leader came
            # in between. The client is to try again. Before version 2 it must not: the batch might belong to the
            # transaction that has ended, and be taken for part of the next one, which has the same epoch.
            error = NotEnoughReplicas(error.message)
        return Refused(_noted(partition.refused, header, without_trace(error), now_ms))
    if partition.refused:
        partition.refused.on_appended(header.producer_id)
    return Written(
        partition,
        appended.base_offset,
        Offset(appended.last_offset + 1),
        appended.log_append_time_ms,
    )


def _append_to_successor(admitted: Admitted, acks: int, now_ms: int) -> Written | Refused:
    """Append in a topic that was shrunk: see `broker/layouts/succession.py`."""
    partition, succession, sent = admitted.partition, admitted.succession, admitted.sent
    if succession is None or sent is None or not succession.is_current:
        if admitted.guard is not None:
            partition.cancel_verification(admitted.guard)
        error: RequestError = NotLeader(f"{admitted.name}: the topic's layout has just changed")
        (partition if succession is None else succession).refused.note(
            sent or admitted.batch.header, error, now_ms=now_ms
        )
        return Refused(error)
    refused = succession.refused
    try:
        if acks == ACKS_ALL:
            partition.role.leading().check_writable()
        if (before := succession.find_duplicate(sent)) is not None:
            return Written(
                before.partition,
                before.base_offset if before.partition.name == succession.name else -1,
                before.next_offset,
            )
        if refused and not succession.knows_producer(sent.producer_id):
            missing = refused.error_for_gap(sent, now_ms=now_ms)
            if missing is not None:
                return Refused(missing)
        appended = partition.append(
            admitted.batch,
            now_ms=now_ms,
            guard=admitted.guard,
            earlier=succession.earlier_state(sent.producer_id),
        )
    except RequestError as refusal:
        if isinstance(refusal, InvalidTransactionState) and admitted.is_implicit:
            # See `_append`.
            refusal = NotEnoughReplicas(refusal.message)
        return Refused(_noted(refused, sent, without_trace(refusal), now_ms))
    if refused:
        refused.on_appended(sent.producer_id)
    succession.count()
    return Written(
        partition,
        # The offset is the heir's: a client that took it for the named partition's would read something else.
        -1 if succession.is_redirect else appended.base_offset,
        Offset(appended.last_offset + 1),
        appended.log_append_time_ms,
    )


def _append_mirrored(admitted: AdmittedMirrored, acks: int, now_ms: int) -> Written | Refused:
    partition, batches = admitted.partition, admitted.batches
    try:
        if acks == ACKS_ALL:
            partition.role.leading().check_writable()
        next_offset = partition.append_mirrored(batches, now_ms=now_ms)
    except RequestError as error:
        return Refused(without_trace(error))
    return Written(partition, batches.base_offset, next_offset)


def _noted(
    refused: RefusedBatches, header: BatchHeader, error: RequestError, now_ms: int
) -> RequestError:
    """Remember the refused batch, for those sent behind it. Return the error that the client gets."""
    if isinstance(error, OutOfOrderSequence):
        return refused.error_for_gap(header, now_ms=now_ms) or error
    refused.note(header, error, now_ms=now_ms)
    return error


def without_trace(error: RequestError) -> RequestError:
    """Return the error without its traceback, whose frames still reference the records."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)
