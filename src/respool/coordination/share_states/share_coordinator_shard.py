"""The share coordinator's state machine for one partition of `__share_group_state`.

`decision.py` describes the interface. A share partition's state is a snapshot and the updates after it. The log is not
compacted, since updates of one share partition add up: what lies before the oldest snapshot in use is deleted instead.
Share partitions that do not change are written again if they keep much of the log from being deleted.

Two epochs fence writes. The leader epoch: the leader of the data partition reads the state before it writes, and after
that no older leader does. The state epoch: altered or deleted offsets make the leader read again.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from respool.coordination.decision import CoordinatorRecord, Decision, Ticket, TimerKey
from respool.coordination.draft import Draft
from respool.coordination.share.share_state import ShareKey, ShareState, ShareStateUpdate
from respool.coordination.share.state_merge import apply_update
from respool.coordination.share_states.share_state_records import (
    ShareSnapshot,
    ShareStateRecord,
    ShareStateRecordKind,
    ShareUpdateRecord,
    read_share_state_key,
    read_share_state_value,
    write_share_snapshot,
    write_share_state_key,
    write_share_update,
)
from respool.coordination.share_states.share_state_requests import (
    DeleteStates,
    InitializeStates,
    PruneTo,
    ReadStates,
    StateRequest,
    StatesChanged,
    StatesRead,
    StatesSummarized,
    StateSummary,
    SummarizeStates,
    WriteStates,
)
from respool.model.coordinator_errors import GroupIdNotFound
from respool.model.errors import FencedLeaderEpoch, RequestError
from respool.model.ids import LeaderEpoch, Offset
from respool.model.share.share_broker_settings import ShareCoordinatorSettings
from respool.model.share.share_errors import FencedStateEpoch

logger = logging.getLogger(__name__)

PRUNE_TIMER: TimerKey = ("prune",)
COLD_TIMER: TimerKey = ("cold snapshots",)
NEVER_READ = LeaderEpoch(-1)
# A snapshot is due once its updates have as many times its bytes: loading reads little more than snapshots then.
UPDATE_BYTES_PER_SNAPSHOT_BYTE = 16
# Cold share partitions are written again if the log has more records than this for each share partition.
RECORDS_PER_COLD = 4
RECORDS_TO_SPARE = 1_000
# The size of a batch of cold snapshots; the rest follow at once, after other requests that are waiting.
COLD_BYTES_MAX = 128 * 1_024


@dataclass(slots=True, kw_only=True)
class _Stored:
    """A share partition: changes only by `replay`, except for the time of its last change."""

    state: ShareState
    snapshot_epoch: int
    created_at_ms: int
    # Of its last snapshot, in the log.
    snapshot_offset: Offset
    snapshot_bytes: int
    update_count: int = 0
    update_bytes: int = 0
    # By the monotonic clock; 0 after loading.
    changed_at_ms: int = 0


class ShareCoordinatorShard:
    writing_requests = (InitializeStates, WriteStates, DeleteStates)

    def __init__(self, settings: ShareCoordinatorSettings) -> None:
        self._settings = settings
        self._stored: dict[ShareKey, _Stored] = {}
        # The offset after the last record that was replayed.
        self._log_end = Offset(0)
        self._pruned_to = Offset(0)
        self._skipped_kinds: set[bytes] = set()
        self._repliers: dict[type, Callable[[Any, Draft], Any]] = {
            InitializeStates: self._initialize,
            ReadStates: self._read,
            WriteStates: self._write,
            DeleteStates: self._delete,
            SummarizeStates: lambda request, _: self._summarize(request),
        }

    @property
    def states(self) -> Mapping[ShareKey, ShareState]:
        """The stored states, for read access."""
        return {key: one.state for key, one in self._stored.items()}

    def decide(
        self, request: StateRequest, *, ticket: Ticket, now_ms: int, wall_ms: int | None = None
    ) -> Decision:
        draft = Draft(now_ms, wall_ms=wall_ms)
        draft.answer(ticket, self._repliers[type(request)](request, draft))
        return draft.decision()

    def on_loaded(self, *, now_ms: int, wall_ms: int | None = None) -> Decision:
        draft = Draft(now_ms, wall_ms=wall_ms)
        draft.set_timer(PRUNE_TIMER, now_ms + self._settings.share_coordinator_prune_interval_ms)
        draft.set_timer(
            COLD_TIMER, now_ms + self._settings.share_coordinator_cold_snapshot_interval_ms
        )
        return draft.decision()

    def on_timer(self, key: TimerKey, *, now_ms: int, wall_ms: int | None = None) -> Decision:
        draft = Draft(now_ms, wall_ms=wall_ms)
        if key == PRUNE_TIMER:
            self._prune(draft)
            interval_ms = self._settings.share_coordinator_prune_interval_ms
            draft.set_timer(key, now_ms + interval_ms)
        else:
            assert key == COLD_TIMER, key
            has_more = self._write_cold(draft)
            interval_ms = self._settings.share_coordinator_cold_snapshot_interval_ms
            draft.set_timer(key, now_ms if has_more else now_ms + interval_ms)
        return draft.decision()

    def replay_at(self, record: CoordinatorRecord, offset: Offset) -> None:
        """Apply a record of the log, which has this offset.

        Raises:
            CoordinatorRecordDamaged: the record cannot be read.
        """
        self._log_end = Offset(offset + 1)
        read = read_share_state_key(record.key)
        if read is None:
            if record.key[:2] not in self._skipped_kinds:
                self._skipped_kinds.add(record.key[:2])
                logger.warning("records of kind %s are unknown here", record.key[:2].hex())
            return
        kind, key = read
        if record.value is None:
            if kind is ShareStateRecordKind.SNAPSHOT:
                self._stored.pop(key, None)
            return
        value = read_share_state_value(kind, record.value)
        self._replay(key, value, offset=offset, byte_count=len(record.value))

    def replay(self, record: CoordinatorRecord) -> None:
        """Apply a record at the end of the log."""
        self.replay_at(record, self._log_end)

    def _replay(
        self, key: ShareKey, value: ShareStateRecord, *, offset: Offset, byte_count: int
    ) -> None:
        stored = self._stored.get(key)
        if isinstance(value, ShareSnapshot):
            self._stored[key] = _Stored(
                state=value.state,
                snapshot_epoch=value.snapshot_epoch,
                created_at_ms=value.created_at_ms,
                snapshot_offset=offset,
                snapshot_bytes=byte_count,
                changed_at_ms=0 if stored is None else stored.changed_at_ms,
            )
            return
        # An update without its snapshot: the snapshot was pruned, so the state was deleted or replaced since.
        if stored is None or stored.snapshot_epoch != value.snapshot_epoch:
            return
        update = ShareStateUpdate(
            state_epoch=stored.state.state_epoch,
            leader_epoch=value.leader_epoch,
            start_offset=value.start_offset,
            finished_count=value.finished_count,
            batches=value.batches,
        )
        state = apply_update(stored.state, update)
        stored.state = replace(state, leader_epoch=max(value.leader_epoch, state.leader_epoch))
        stored.update_count += 1
        stored.update_bytes += byte_count

    # --- requests

    def _initialize(self, request: InitializeStates, draft: Draft) -> StatesChanged:
        results: dict[ShareKey, RequestError | None] = {}
        for key, initial in request.states.items():
            stored = self._stored.get(key)
            results[key] = None
            if stored is None or initial.state_epoch > stored.state.state_epoch:
                state = ShareState(
                    state_epoch=initial.state_epoch,
                    leader_epoch=NEVER_READ,
                    start_offset=initial.start_offset,
                    finished_count=0 if initial.start_offset >= 0 else -1,
                )
                self._snapshot(key, state, draft, is_new=stored is None)
            elif 0 < initial.state_epoch < stored.state.state_epoch:
                results[key] = FencedStateEpoch(
                    f"{_named(key)} is at state epoch {stored.state.state_epoch}, not {initial.state_epoch}"
                )
        return StatesChanged(results=results)

    def _read(self, request: ReadStates, draft: Draft) -> StatesRead:
        results: dict[ShareKey, ShareState | RequestError] = {}
        for key, leader_epoch in request.leader_epochs.items():
            stored = self._stored.get(key)
            if stored is None:
                results[key] = _missing(key)
            elif leader_epoch < stored.state.leader_epoch:
                results[key] = _outdated(key, leader_epoch, stored)
            else:
                state = stored.state
                if leader_epoch > state.leader_epoch:
                    state = replace(state, leader_epoch=leader_epoch)
                    update = ShareStateUpdate(
                        state_epoch=state.state_epoch,
                        leader_epoch=leader_epoch,
                        finished_count=state.finished_count,
                    )
                    self._update(key, stored, update, state, draft)
                results[key] = state
        return StatesRead(results=results)

    def _write(self, request: WriteStates, draft: Draft) -> StatesChanged:
        results: dict[ShareKey, RequestError | None] = {}
        for key, update in request.updates.items():
            stored = self._stored.get(key)
            error: RequestError | None = None
            if stored is None:
                error = _missing(key)
            elif update.leader_epoch < stored.state.leader_epoch:
                error = _outdated(key, update.leader_epoch, stored)
            elif (update.state_epoch, update.leader_epoch) != (
                stored.state.state_epoch,
                stored.state.leader_epoch,
            ):
                # The leader has not read this state: it was deleted and initialized since, perhaps at the same epoch.
                error = FencedStateEpoch(
                    f"{_named(key)} is at state epoch {stored.state.state_epoch}, and was not read by this leader"
                )
            else:
                self._update(key, stored, update, None, draft)
            results[key] = error
        return StatesChanged(results=results)

    def _delete(self, request: DeleteStates, draft: Draft) -> StatesChanged:
        for key in sorted(request.keys):
            if key in self._stored:
                draft.write(write_share_state_key(ShareStateRecordKind.SNAPSHOT, key), None)
        return StatesChanged(results=dict.fromkeys(request.keys))

    def _summarize(self, request: SummarizeStates) -> StatesSummarized:
        results: dict[ShareKey, StateSummary | RequestError] = {}
        for key in request.keys:
            stored = self._stored.get(key)
            if stored is None:
                results[key] = _missing(key)
            else:
                state = stored.state
                results[key] = StateSummary(
                    state.state_epoch, state.leader_epoch, state.start_offset, state.finished_count
                )
        return StatesSummarized(results=results)

    # --- records

    def _update(
        self,
        key: ShareKey,
        stored: _Stored,
        update: ShareStateUpdate,
        after: ShareState | None,
        draft: Draft,
    ) -> None:
        """Write an update; or the whole state, if there are enough updates. `after` is it, if the caller knows."""
        stored.changed_at_ms = draft.now_ms
        enough = self._settings.share_coordinator_snapshot_update_records_per_snapshot
        enough_bytes = stored.snapshot_bytes * UPDATE_BYTES_PER_SNAPSHOT_BYTE
        if stored.update_count >= enough or stored.update_bytes > enough_bytes:
            state = after or apply_update(stored.state, update)
            self._snapshot(key, state, draft, is_new=False)
            return
        record = ShareUpdateRecord(
            snapshot_epoch=stored.snapshot_epoch,
            leader_epoch=update.leader_epoch,
            start_offset=update.start_offset,
            finished_count=update.finished_count,
            batches=update.batches,
        )
        draft.write(
            write_share_state_key(ShareStateRecordKind.UPDATE, key), write_share_update(record)
        )

    def _snapshot(self, key: ShareKey, state: ShareState, draft: Draft, *, is_new: bool) -> None:
        stored = None if is_new else self._stored[key]
        record = ShareSnapshot(
            # As in Kafka, the epoch of a snapshot is one that no earlier one of the share partition has.
            snapshot_epoch=0 if stored is None else stored.snapshot_epoch + 1,
            created_at_ms=draft.wall_ms if stored is None else stored.created_at_ms,
            written_at_ms=draft.wall_ms,
            state=state,
        )
        draft.write(
            write_share_state_key(ShareStateRecordKind.SNAPSHOT, key), write_share_snapshot(record)
        )

    # --- the log's start

    def _prune(self, draft: Draft) -> None:
        needed = self._oldest_needed()
        if needed > self._pruned_to:
            self._pruned_to = needed
            draft.carry_out(PruneTo(offset=needed))

    def _oldest_needed(self) -> Offset:
        return min((one.snapshot_offset for one in self._stored.values()), default=self._log_end)

    def _write_cold(self, draft: Draft) -> bool:
        """Write cold share partitions again that keep much of the log; return True if there may be more."""
        room = RECORDS_PER_COLD * len(self._stored) + RECORDS_TO_SPARE
        keeps_until = self._log_end - room
        cold_ms = self._settings.share_coordinator_cold_snapshot_interval_ms
        cold_since_ms = draft.now_ms - cold_ms
        for key, stored in self._stored.items():
            if stored.snapshot_offset < keeps_until and stored.changed_at_ms <= cold_since_ms:
                if draft.record_bytes > COLD_BYTES_MAX:
                    return True
                self._snapshot(key, stored.state, draft, is_new=False)
        return False


def _named(key: ShareKey) -> str:
    return f"the state of group {key.group} for partition {key.partition} of topic {key.topic_id}"


def _missing(key: ShareKey) -> GroupIdNotFound:
    return GroupIdNotFound(f"there is no state of group {key.group} for this partition")


def _outdated(key: ShareKey, leader_epoch: LeaderEpoch, stored: _Stored) -> FencedLeaderEpoch:
    return FencedLeaderEpoch(
        f"{_named(key)} was read at leader epoch {stored.state.leader_epoch}, after {leader_epoch}"
    )
