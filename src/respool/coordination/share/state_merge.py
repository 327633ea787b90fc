"""Applies an update to the stored state of a share partition. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from respool.coordination.share.share_state import (
    FINISHED_STATES,
    UNCHANGED_START,
    ShareState,
    ShareStateUpdate,
    StateBatch,
)
from respool.model.ids import Offset


def apply_update(state: ShareState, update: ShareStateUpdate) -> ShareState:
    """The state after the update. The caller has compared both epochs."""
    start = state.start_offset if update.start_offset == UNCHANGED_START else update.start_offset
    batches = merge_batches(state.batches, update.batches, start_offset=start)
    return replace(state, start_offset=start, batches=batches, finished_count=update.finished_count)


def merge_batches(
    old: Sequence[StateBatch], new: Sequence[StateBatch], *, start_offset: Offset
) -> tuple[StateBatch, ...]:
    """`new` replaces what it overlaps; what is below the start is dropped; equal adjacent batches are joined."""
    merged: list[StateBatch] = []
    for batch in sorted([*_without(old, new), *new]):
        if batch.last < start_offset:
            continue
        if batch.first < start_offset:
            batch = batch._replace(first=start_offset)  # noqa: PLW2901 - the part that is left
        before = merged[-1] if merged else None
        if before is None or before.last + 1 != batch.first or not _is_alike(before, batch):
            merged.append(batch)
            continue
        count = max(before.delivery_count, batch.delivery_count)
        merged[-1] = before._replace(last=batch.last, delivery_count=count)
    return tuple(merged)


def _is_alike(one: StateBatch, other: StateBatch) -> bool:
    """How often finished records were delivered is of no use, so one large run of them stays one."""
    if one.state != other.state or one.due_at_ms != other.due_at_ms:
        return False
    return one.state in FINISHED_STATES or one.delivery_count == other.delivery_count


def _without(old: Sequence[StateBatch], new: Sequence[StateBatch]) -> Iterable[StateBatch]:
    """The parts of `old` that no batch of `new` covers."""
    index = 0
    for batch in old:
        first = batch.first
        while index < len(new) and new[index].last < first:
            index += 1
        at = index
        while at < len(new) and new[at].first <= batch.last:
            if first < new[at].first:
                yield batch._replace(first=first, last=new[at].first - 1)
            first = new[at].last + 1
            at += 1
        if first <= batch.last:
            yield batch._replace(first=first)
