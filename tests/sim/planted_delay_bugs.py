"""Mistakes that delays may have, made on purpose. As `planted_bugs.py`; each with a seed that finds it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from respool.broker.deliveries.deliveries import Deliveries
from respool.broker.deliveries.delivery_worker import DeliveryWorker
from respool.broker.deliveries.log_facts import LogFacts
from respool.broker.deliveries.partition_delays import Job, PartitionDelays
from respool.broker.partitions.partition import Partition
from respool.broker.views import views
from respool.model.ids import Offset
from respool.model.where import parse_where
from respool.records.build import NewRecord
from respool.replication.leader import Leader
from respool.timing import delay_records, pending
from respool.timing.delay_records import WaitingRecord
from respool.timing.pending import Advanced, Pending
from sim.planted_bugs import Plant


def a_new_leader_delivers_before_it_has_seen_all_copies(patch: pytest.MonkeyPatch) -> None:
    """It does not wait for its epoch's first offset, and what its predecessor delivered last comes again."""

    def leading(self: DeliveryWorker) -> Leader | None:
        return self.partition.leader

    patch.setattr(DeliveryWorker, "_leading", leading)
    patch.setattr(PartitionDelays, "_read_above", lambda self: None)


def records_are_armed_when_they_are_appended(patch: pytest.MonkeyPatch) -> None:
    """And not when they are stable: the transaction may be aborted."""
    lead = PartitionDelays.lead

    def lead_from_the_end(self: PartitionDelays, stable_end: Offset, **more: Any) -> Job:
        return lead(self, self.log.log_end, **more)

    patch.setattr(PartitionDelays, "lead", lead_from_the_end)


def aborted_records_are_armed(patch: pytest.MonkeyPatch) -> None:
    """The index of aborted transactions is not asked."""
    patch.setattr(LogFacts, "_aborted", lambda self, batches: [])


def retention_does_not_carry(patch: pytest.MonkeyPatch) -> None:
    """What waits is deleted with its segment."""

    async def carry(self: Deliveries, partition: Partition, new_start: Offset) -> None:
        """Nothing is appended again."""

    patch.setattr(Deliveries, "carry", carry)
    patch.setattr(Deliveries, "deletable_to", lambda self, partition: partition.high_watermark)


def copies_keep_what_delayed_them(patch: pytest.MonkeyPatch) -> None:
    """They are hidden as well."""
    build = delay_records._with_headers

    def with_headers(*args: Any, stripped: frozenset[str], **more: Any) -> NewRecord:
        return build(*args, stripped=frozenset(), **more)

    patch.setattr(delay_records, "_with_headers", with_headers)


def ids_are_matched_by_their_hash(patch: pytest.MonkeyPatch) -> None:
    """A record is cancelled by another id with the same hash."""

    def hash_id(key: bytes) -> int:
        return sum(key) % 2

    patch.setattr(pending, "hash_id", hash_id)

    def is_superseded(self: Pending, waiting: WaitingRecord, _: Any) -> bool:
        return waiting.id is not None and bool(
            list(self._ids.newer(hash_id(waiting.id), waiting.first))
        )

    patch.setattr(Pending, "is_superseded", is_superseded)


def cancellations_are_not_looked_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Pending, "is_superseded", lambda self, waiting, read_id: False)


def the_timer_is_trusted(patch: pytest.MonkeyPatch) -> None:
    """A timer that fires a little early delivers a little early."""
    advance = Pending.advance

    def advance_early(
        self: Pending, now_ms: int, *, due_ms: int | None = None, **more: Any
    ) -> Advanced:
        return advance(self, now_ms, due_ms=now_ms + 2 if due_ms is None else due_ms, **more)

    patch.setattr(Pending, "advance", advance_early)


def delayed_records_are_shown_at_once(patch: pytest.MonkeyPatch) -> None:
    """A topic with delays is read like any other."""
    patch.setattr(views, "NOT_HIDDEN", parse_where("exists(of)"))


def what_is_being_carried_is_delivered(patch: pytest.MonkeyPatch) -> None:
    """It comes again from where it was carried to: replicas take the copy for one of the earlier place."""

    class Nothing(set[Offset]):
        def add(self, _: Offset) -> None:
            """Nobody remembers what is carried."""

    begin = Pending.__init__

    def init(self: Pending, *args: Any, **more: Any) -> None:
        begin(self, *args, **more)
        self._carrying = Nothing()

    patch.setattr(Pending, "__init__", init)


def a_schedule_counts_from_its_delivery(patch: pytest.MonkeyPatch) -> None:
    """And drifts, instead of keeping its times."""
    due_after = delay_records.copy_of

    def copy_of(waiting: WaitingRecord, *, due_ms: int, next_ms: int | None) -> NewRecord:
        return due_after(waiting, due_ms=due_ms, next_ms=None if next_ms is None else next_ms + 7)

    patch.setattr(pending, "copy_of", copy_of)


@dataclass(frozen=True, slots=True)
class Finder:
    """The seed that finds it, and for how many brokers."""

    seed: int
    brokers: int = 1


DELAY_PLANTS: Mapping[Plant, Finder] = {
    a_new_leader_delivers_before_it_has_seen_all_copies: Finder(25, 3),
    records_are_armed_when_they_are_appended: Finder(19),
    aborted_records_are_armed: Finder(19),
    retention_does_not_carry: Finder(55),
    copies_keep_what_delayed_them: Finder(26),
    ids_are_matched_by_their_hash: Finder(26),
    cancellations_are_not_looked_up: Finder(23),
    the_timer_is_trusted: Finder(38),
    delayed_records_are_shown_at_once: Finder(26),
    what_is_being_carried_is_delivered: Finder(197, 3),
    a_schedule_counts_from_its_delivery: Finder(26),
}
