"""Mistakes that brokers have made, to be made again on purpose: a simulation that finds none of them proves nothing.

Each function spoils the broker for as long as its monkeypatch lasts.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from respool.broker.coordinators.runtime import CoordinatorRuntime
from respool.broker.handlers.messages import produce
from respool.broker.handlers.support import produced_batch, transactional_produce
from respool.broker.handlers.support.produced_batch import ProducedBatch
from respool.broker.partitions.flusher import PartitionSync
from respool.broker.partitions.partition import Partition
from respool.broker.partitions.watermarks import Watermarks
from respool.coordination.decision import Decision
from respool.coordination.groups.group_coordinator_shard import GroupCoordinatorShard
from respool.coordination.groups.offset_requests import OffsetRequests
from respool.coordination.transactions.transaction_coordinator_shard import (
    TransactionCoordinatorShard,
)
from respool.log import pending_sync
from respool.log.index.transaction_index import TransactionIndex
from respool.log.partition_folder import METADATA_NAME, NEW_METADATA_NAME
from respool.log.partition_log import PartitionLog
from respool.log.producers import producer_check, producer_states
from respool.log.recovery import recovery, segment_scan
from respool.ports.disk import Disk
from respool.replication.effects import BeginEpoch
from respool.replication.leader import Leader
from respool.sim.disk.simulated_files import SimLogFile

Plant = Callable[[pytest.MonkeyPatch], None]


def committed_before_it_is_synced(patch: pytest.MonkeyPatch) -> None:
    """The high watermark moves with the append, as if the page cache were a disk."""
    append = Partition._on_appended

    def on_appended(self: Partition, log: PartitionLog, *args: Any, **more: Any) -> None:
        append(self, log, *args, **more)
        self.advance_to(log.log_end)

    patch.setattr(Partition, "_on_appended", on_appended)


def acknowledged_before_it_is_committed(patch: pytest.MonkeyPatch) -> None:
    """acks=all is answered as acks=1 is with flush=os."""
    patch.setattr(produce._DurableAnswer, "is_waiting", property(lambda _: False))


def acks_1_is_answered_before_it_is_synced(patch: pytest.MonkeyPatch) -> None:
    """The reply leaves when the batch is in the page cache, whatever the topic's flush is."""
    patch.setattr(ProducedBatch, "is_durable_here", property(lambda _: True))


def torn_batches_are_kept(patch: pytest.MonkeyPatch) -> None:
    """Recovery looks at lengths and not at checksums."""
    patch.setattr(segment_scan, "check_stored", lambda header, data: True)


def failed_sync_is_forgiven(patch: pytest.MonkeyPatch) -> None:
    """The next sync succeeds, so all must be well."""
    finish = PartitionSync.finish
    patch.setattr(PartitionSync, "finish", lambda self, error: finish(self, None))


def recovery_believes_the_page_cache(patch: pytest.MonkeyPatch) -> None:
    """What a failed sync left in memory is read after a restart as if it were on the disk."""
    patch.setattr(SimLogFile, "forget_cached", lambda self: None)


def first_record_before_its_folder(patch: pytest.MonkeyPatch) -> None:
    """The first record of a new log is acknowledged before the log's folder is synced."""

    def rename_only(disk: Disk, folder: str) -> None:
        if disk.exists(f"{folder}/{NEW_METADATA_NAME}"):
            disk.rename(f"{folder}/{NEW_METADATA_NAME}", f"{folder}/{METADATA_NAME}")

    patch.setattr(pending_sync, "make_folder_durable", rename_only)


def retries_are_not_recognised(patch: pytest.MonkeyPatch) -> None:
    """What an idempotent producer sends again is appended again."""
    patch.setattr(producer_check, "_find_duplicate", lambda state, header: None)
    patch.setattr(producer_check, "_check_sequence", lambda state, header: None)


def transactions_are_not_verified(patch: pytest.MonkeyPatch) -> None:
    """Whoever sends the first batch of a transaction is believed that it is open (KIP-890)."""
    check = producer_check.check_transactional

    async def verify(*_: Any) -> None:
        """Nobody asks the coordinator."""

    def check_unverified(state: Any, header: Any, **more: Any) -> Any:
        return check(state, header, **{**more, "is_verified": True})

    patch.setattr(produce, "verify", verify)
    patch.setattr(producer_states, "check_transactional", check_unverified)


def void_guards_are_final(patch: pytest.MonkeyPatch) -> None:
    """A batch that waited for the end of the last transaction is refused, because its marker came meanwhile."""
    patch.setattr(transactional_produce, "_gets_new_guard", lambda write: False)
    # None is translated for the client.
    patch.setattr(produced_batch, "InvalidTransactionState", ())


def open_transactions_are_stable(patch: pytest.MonkeyPatch) -> None:
    """The last stable offset is the high watermark."""
    patch.setattr(PartitionLog, "last_stable_offset", lambda self, high_watermark: high_watermark)


def aborts_are_forgotten_in_recovery(patch: pytest.MonkeyPatch) -> None:
    """The index of aborted transactions is not rebuilt."""
    patch.setattr(TransactionIndex, "replace", lambda self, aborted: None)


def markers_before_the_decision(patch: pytest.MonkeyPatch) -> None:
    """A transaction's ends are written as soon as its coordinator has decided, committed or not."""
    append = CoordinatorRuntime._append

    def append_and_act(self: CoordinatorRuntime, decision: Any, guard: Any) -> bool:
        is_appended = append(self, decision, guard)
        for effect in decision.effects if is_appended and self._on_effect else ():
            assert self._on_effect is not None
            self._on_effect(effect)
        return is_appended

    patch.setattr(CoordinatorRuntime, "_append", append_and_act)


def coordinators_answer_at_once(patch: pytest.MonkeyPatch) -> None:
    """Commits are acknowledged before their records are."""
    append = CoordinatorRuntime._append

    def append_and_answer(self: CoordinatorRuntime, decision: Any, guard: Any) -> bool:
        is_appended = append(self, decision, guard)
        if is_appended:
            self.answer(decision.answers)
        return is_appended

    patch.setattr(CoordinatorRuntime, "_append", append_and_answer)


def offsets_count_before_the_marker(patch: pytest.MonkeyPatch) -> None:
    """What a transaction commits for its group is visible at once."""
    replay = GroupCoordinatorShard.replay
    patch.setattr(GroupCoordinatorShard, "replay", lambda self, record, **_: replay(self, record))


def stale_members_may_commit(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks at the generation of a commit."""
    patch.setattr(OffsetRequests, "_check_commit", lambda self, request, now_ms: None)


def high_watermark_starts_again(patch: pytest.MonkeyPatch) -> None:
    """After a restart nothing is committed until something is appended."""
    begin_at = Watermarks.begin_at
    patch.setattr(
        Watermarks, "begin_at", lambda self, log, high_watermark: begin_at(self, log, log.log_start)
    )
    begin = Leader.begin
    patch.setattr(
        Leader, "begin", lambda self: [one for one in begin(self) if isinstance(one, BeginEpoch)]
    )


def markers_are_not_resumed(patch: pytest.MonkeyPatch) -> None:
    """A coordinator that starts again leaves decided transactions as they are."""
    on_loaded = TransactionCoordinatorShard.on_loaded

    def forget(self: TransactionCoordinatorShard, *, now_ms: int) -> Decision:
        return dataclasses.replace(on_loaded(self, now_ms=now_ms), effects=())

    patch.setattr(TransactionCoordinatorShard, "on_loaded", forget)


def producers_are_forgotten_in_recovery(patch: pytest.MonkeyPatch) -> None:
    """What lies behind the last snapshot is not told to the producers' state."""
    patch.setattr(recovery, "replay_batch", lambda producers, segment, batch: None)


PLANTS: tuple[Plant, ...] = (
    committed_before_it_is_synced,
    acknowledged_before_it_is_committed,
    acks_1_is_answered_before_it_is_synced,
    torn_batches_are_kept,
    failed_sync_is_forgiven,
    recovery_believes_the_page_cache,
    first_record_before_its_folder,
    retries_are_not_recognised,
    transactions_are_not_verified,
    void_guards_are_final,
    open_transactions_are_stable,
    aborts_are_forgotten_in_recovery,
    markers_before_the_decision,
    coordinators_answer_at_once,
    offsets_count_before_the_marker,
    stale_members_may_commit,
    high_watermark_starts_again,
    markers_are_not_resumed,
    producers_are_forgotten_in_recovery,
)
