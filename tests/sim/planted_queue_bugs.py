"""Mistakes that share groups may have, made on purpose. As `planted_bugs.py`; each with a seed that finds it."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from respool.broker.share import share_reading, stored_batches
from respool.broker.share.share_partition import SharePartition
from respool.coordination.share import acknowledgement, share_machine
from respool.coordination.share.acknowledged_ranges import AcknowledgedRange
from respool.coordination.share.acquisition import Acquisition
from respool.coordination.share.in_flight import HELD, InFlight, RecordRun
from respool.coordination.share.key_order import KeyOrder
from respool.coordination.share.share_machine import SharePartitionMachine
from respool.coordination.share.share_state import (
    FINISHED_STATES,
    NOT_DELAYED,
    StateBatch,
)
from respool.coordination.share.transitions import Transitions
from respool.model.ids import Offset
from sim.planted_bugs import Plant
from sim.planted_delay_bugs import Finder


def a_release_is_not_stored(patch: pytest.MonkeyPatch) -> None:
    """The record is available in memory, and the next leader knows nothing of its delivery."""
    release = Transitions.make_available

    def make_available(self: Transitions, first: int, last: int, *args: Any, **more: Any) -> None:
        changed, self.changed = self.changed, type(self.changed)()
        release(self, first, last, *args, **more)
        self.changed = changed

    patch.setattr(Transitions, "make_available", make_available)


def deliveries_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    def held(self: Acquisition, run: RecordRun) -> RecordRun:
        return RecordRun(run.last, HELD, max(1, run.delivery_count), self._lock)

    patch.setattr(Acquisition, "_held", held)


def what_is_finished_is_forgotten_when_it_is_loaded(patch: pytest.MonkeyPatch) -> None:
    """Only the start counts: what was accepted above it comes again."""
    load = SharePartitionMachine._load

    def load_unfinished(
        self: SharePartitionMachine, batches: Sequence[StateBatch], **more: Any
    ) -> None:
        load(self, [one for one in batches if one.state not in FINISHED_STATES], **more)

    patch.setattr(SharePartitionMachine, "_load", load_unfinished)


def pauses_end_with_their_leader(patch: pytest.MonkeyPatch) -> None:
    """When a record may come again is not loaded."""
    patch.setattr(SharePartitionMachine, "_loaded_due", lambda self, batch, **_: NOT_DELAYED)


def a_released_record_does_not_hold_its_key(patch: pytest.MonkeyPatch) -> None:
    """The next of the key is delivered while it waits."""

    def is_finished(self: KeyOrder, offset: int) -> bool:
        if offset < self._window.start:
            return True
        return self._window.run_at(offset).state != HELD

    patch.setattr(KeyOrder, "_is_finished", is_finished)


def an_acknowledgement_reaches_too_far(patch: pytest.MonkeyPatch) -> None:
    """The neighbour of a record is accepted with it."""
    apply = acknowledgement.apply_acknowledgements

    def apply_to_neighbours(
        transitions: Transitions, member: str, ranges: Sequence[AcknowledgedRange], *, now_ms: int
    ) -> None:
        apply(transitions, member, ranges, now_ms=now_ms)
        window: InFlight = transitions.window
        last = max(one.last for one in ranges) + 1
        if window.start <= last < window.end:
            for part in window.between(last, last):
                if not part[2].is_finished:
                    transitions.accept(*part)

    patch.setattr(share_machine, "apply_acknowledgements", apply_to_neighbours)


def aborted_records_are_delivered(patch: pytest.MonkeyPatch) -> None:
    """In spite of share.isolation.level=read_committed."""
    deliverable = stored_batches.deliverable

    def deliverable_all(batches: Any, first: Offset, *, aborted: Any, **more: Any) -> Any:
        del aborted
        return deliverable(batches, first, aborted=(), **more)

    patch.setattr(share_reading, "deliverable", deliverable_all)


def uncommitted_records_are_delivered(patch: pytest.MonkeyPatch) -> None:
    """Up to the end of the log."""
    patch.setattr(SharePartition, "readable_end", property(lambda self: self.partition.log.log_end))


QUEUE_PLANTS: Mapping[Plant, Finder] = {
    a_release_is_not_stored: Finder(10),
    deliveries_are_not_counted: Finder(10),
    what_is_finished_is_forgotten_when_it_is_loaded: Finder(10),
    a_released_record_does_not_hold_its_key: Finder(10),
    an_acknowledgement_reaches_too_far: Finder(10),
    aborted_records_are_delivered: Finder(15),
    uncommitted_records_are_delivered: Finder(15),
    pauses_end_with_their_leader: Finder(15),
}
