"""The follower's state machine: its fetch offset, truncations before the fetch, and its high watermark.

```
   next_fetch -> (ask the leader) -> on_fetched --+-- Append        -> on_appended -> on_durable --+
       ^                                          +-- TruncateTo    -> on_truncated ---------------+
       |                                          +-- AskLeaderRange -> on_leader_range            |
       +-------------------------------------------------------------------------------------------+
```
Operations run one at a time: no fetch is sent while another operation is in progress. But an append need not be durable
before the next fetch: a fetch reports the log end and, separately, the durable end. Within one leader epoch the durable
end never moves backwards, because the first fetch waits until the whole log is durable.
"""

from dataclasses import dataclass

from respool.model.cluster import PartitionImage
from respool.model.errors import (
    FencedLeaderEpoch,
    NotLeader,
    OffsetNotAvailable,
    OffsetOutOfRange,
)
from respool.model.ids import BrokerId, LeaderEpoch, Offset
from respool.replication.divergence import EndOfEpoch, EpochHistory, agreed_end
from respool.replication.effects import (
    Append,
    AskLeaderRange,
    FollowerEffect,
    HighWatermarkMoved,
    LookUpLeader,
    RaiseLogStart,
    ResetLogTo,
    TruncateTo,
    WaitFor,
)

# The delay after an error, or after a fetch without a reply.
BACKOFF_MS = 200

UNKNOWN_OFFSET = Offset(-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchFrom:
    """A fetch to send. The caller passes it back together with its reply."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    offset: Offset
    # The log is durable below this offset; at most `offset`.
    durable_end: Offset
    # The epoch of the last record before `offset`; -1 if there is none.
    last_fetched_epoch: LeaderEpoch
    log_start: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """The leader's reply, without the records."""

    error: int = 0
    has_records: bool = False
    diverging: EndOfEpoch | None = None
    high_watermark: Offset = UNKNOWN_OFFSET
    log_start: Offset = UNKNOWN_OFFSET


class Follower:
    def __init__(
        self,
        me: BrokerId,
        image: PartitionImage,
        *,
        log_start: Offset,
        log_end: Offset,
        durable_end: Offset,
        last_epoch: LeaderEpoch,
        high_watermark: Offset,
        history: EpochHistory,
    ) -> None:
        """`durable_end` is the synced end with respool.flush=always; else the log end."""
        assert image.leader != me, f"broker {me} would follow itself"
        assert durable_end <= log_end
        assert high_watermark <= log_end
        self.me = me
        self.image = image
        self.high_watermark = high_watermark
        self._history = history
        self._log_start = log_start
        self._log_end = log_end
        self._durable_end = durable_end
        self._last_epoch = last_epoch
        # From the leader's last reply; they take effect when the records of that reply are appended.
        self._leader_high_watermark = high_watermark
        self._leader_log_start = log_start
        # The fetch in flight.
        self._asked: FetchFrom | None = None
        self._awaits_range = False
        # An append or a truncation is in progress.
        self._is_busy = False
        # The leader epoch in which all records from before the epoch are known to be durable.
        self._durable_epoch: LeaderEpoch | None = None

    def next_fetch(self) -> FetchFrom | None:
        """The next fetch; None while another operation is in progress, or without a leader."""
        leader = self.image.leader
        if self._asked is not None or self._is_busy or self._awaits_range:
            return None
        if leader is None or leader == self.me:
            return None
        if self.awaits_disk and self._durable_epoch != self.image.leader_epoch:
            return None
        self._durable_epoch = self.image.leader_epoch
        self._asked = FetchFrom(
            leader=leader,
            leader_epoch=self.image.leader_epoch,
            offset=self._log_end,
            durable_end=self._reported_durable_end(),
            last_fetched_epoch=self._epoch_to_compare(),
            log_start=self._log_start,
        )
        return self._asked

    @property
    def awaits_disk(self) -> bool:
        """True while the log has records that are not durable yet."""
        return self._durable_end < self._log_end

    @property
    def is_behind_commits(self) -> bool:
        """True while the log has records above the high watermark."""
        return self.high_watermark < self._log_end

    def check_readable(self, offset: Offset) -> None:
        """Check that a consumer may read here from `offset` (KIP-392).

        Raises:
            OffsetNotAvailable: the log may have the record, but it is not known to be committed yet; retry.
            OffsetOutOfRange: the log does not have the record.
        """
        if self.high_watermark < offset <= self._log_end:
            raise OffsetNotAvailable(f"offset {offset}, high watermark {self.high_watermark}")
        if not self._log_start <= offset <= self.high_watermark:
            raise OffsetOutOfRange(
                f"offset {offset}, the log is {self._log_start} to {self.high_watermark}"
            )

    # -- replies -----------------------------------------------------------------------------------------------------

    def on_fetched(self, asked: FetchFrom, reply: Fetched) -> list[FollowerEffect]:
        if not self._is_awaited(asked):
            return []
        self._asked = None
        if reply.error != 0:
            return self._on_error(reply.error)
        diverging = reply.diverging
        if diverging is not None:
            if not diverging.is_known:
                # The leader's epochs do not reach back that far. Its log range shows where to continue.
                return self._ask_range()
            return self._truncate_to_agreement(diverging, leader_log_start=reply.log_start)
        self._leader_high_watermark = reply.high_watermark
        self._leader_log_start = reply.log_start
        if reply.has_records:
            self._is_busy = True
            return [Append()]
        return self._take_watermarks()

    def on_lost(self, asked: FetchFrom) -> list[FollowerEffect]:
        """The fetch got no reply, and none will be passed on."""
        if asked is not self._asked:
            return []
        self._asked = None
        return [WaitFor(delay_ms=BACKOFF_MS)]

    def on_leader_range(
        self, leader_epoch: LeaderEpoch, *, log_start: Offset, log_end: Offset
    ) -> list[FollowerEffect]:
        """The leader has replied with the start and end of its log."""
        if not self._awaits_range or leader_epoch != self.image.leader_epoch:
            return []
        self._awaits_range = False
        if self._log_end < log_start:
            # The leader has deleted the next records that this follower needs.
            self._is_busy = True
            return [ResetLogTo(offset=log_start)]
        if self._log_end > log_end:
            return self._truncate_to(log_end)
        # The fetch offset is in range again: fetch after a pause.
        return [WaitFor(delay_ms=BACKOFF_MS)]

    def on_range_lost(self, leader_epoch: LeaderEpoch) -> list[FollowerEffect]:
        """The request for the leader's range got no reply."""
        if not self._awaits_range or leader_epoch != self.image.leader_epoch:
            return []
        self._awaits_range = False
        return [WaitFor(delay_ms=BACKOFF_MS)]

    # -- the follower's log ------------------------------------------------------------------------------------------

    def on_appended(self, log_end: Offset, *, last_epoch: LeaderEpoch) -> list[FollowerEffect]:
        """The records of the last reply have been appended."""
        assert self._is_busy, "an append without a reply"
        assert log_end >= self._log_end
        self._is_busy = False
        self._log_end = log_end
        self._last_epoch = last_epoch
        return self._take_watermarks()

    def on_durable(self, end: Offset) -> None:
        """The log is durable up to `end`; unless respool.flush=always, that is the log end."""
        # Records that the sync covered may have been truncated since.
        self._durable_end = max(self._durable_end, min(end, self._log_end))

    def on_truncated(
        self, *, log_start: Offset, log_end: Offset, durable_end: Offset, last_epoch: LeaderEpoch
    ) -> list[FollowerEffect]:
        """The log was truncated or, after `ResetLogTo`, emptied."""
        assert durable_end <= log_end
        self._is_busy = False
        self._log_start = log_start
        self._log_end, self._durable_end = log_end, durable_end
        self._last_epoch = last_epoch
        high_watermark = max(log_start, min(self.high_watermark, log_end))
        if high_watermark == self.high_watermark:
            return []
        # Backwards after an unclean election; forwards if everything below was deleted.
        self.high_watermark = high_watermark
        return [HighWatermarkMoved(high_watermark=high_watermark)]

    def on_not_truncated(self) -> None:
        """The truncation failed and the log is unchanged: the next fetch finds the divergence again."""
        assert self._is_busy, "a truncation without an effect"
        self._is_busy = False

    def on_log_start(self, log_start: Offset) -> None:
        self._log_start = log_start

    # -- the cluster -------------------------------------------------------------------------------------------------

    def on_image(self, image: PartitionImage) -> list[FollowerEffect]:
        """Apply a state of the partition from the store. If this broker becomes the leader, the follower ends."""
        if image.revision < self.image.revision or image.leader_epoch < self.image.leader_epoch:
            return []
        is_new_epoch = image.leader_epoch > self.image.leader_epoch
        self.image = image
        if not is_new_epoch:
            return []
        self._awaits_range = False
        self._asked = None
        return []

    # -- deciding ----------------------------------------------------------------------------------------------------

    def _is_awaited(self, asked: FetchFrom) -> bool:
        """False for replies of an earlier epoch, which may have records that the current leader never had."""
        return asked is self._asked

    def _epoch_to_compare(self) -> LeaderEpoch:
        """The epoch that every fetch compares with the leader's: it, not the high watermark, decides truncation."""
        return self._last_epoch

    def _reported_durable_end(self) -> Offset:
        return self._durable_end

    def _on_error(self, error: int) -> list[FollowerEffect]:
        if error == OffsetOutOfRange.code:
            return self._ask_range()
        if error in {FencedLeaderEpoch.code, NotLeader.code}:
            return [LookUpLeader(), WaitFor(delay_ms=BACKOFF_MS)]
        # For example UNKNOWN_LEADER_EPOCH: the leader has not learned of its election yet.
        return [WaitFor(delay_ms=BACKOFF_MS)]

    def _ask_range(self) -> list[FollowerEffect]:
        leader = self.image.leader
        if leader is None:
            return []
        self._awaits_range = True
        return [AskLeaderRange(leader=leader, leader_epoch=self.image.leader_epoch)]

    def _truncate_to_agreement(
        self, diverging: EndOfEpoch, *, leader_log_start: Offset
    ) -> list[FollowerEffect]:
        end = agreed_end(self._history, diverging, log_end=self._log_end)
        if end <= leader_log_start:
            # The leader has no epochs of deleted records, so nothing below its log start can be compared.
            self._is_busy = True
            return [ResetLogTo(offset=leader_log_start)]
        return self._truncate_to(end)

    def _truncate_to(self, offset: Offset) -> list[FollowerEffect]:
        # Even at the log end: epochs without records must be removed (KAFKA-10706).
        self._is_busy = True
        if offset < self._log_start:
            return [ResetLogTo(offset=offset)]
        return [TruncateTo(offset=offset)]

    def _take_watermarks(self) -> list[FollowerEffect]:
        """Apply the leader's watermarks, capped at this log's end."""
        effects: list[FollowerEffect] = []
        high_watermark = self._capped_high_watermark()
        # The log start first: records that the leader has deleted may differ here, because they cannot be compared, and
        # no consumer may read them.
        log_start = min(self._leader_log_start, self._log_end)
        if log_start > self._log_start:
            effects.append(RaiseLogStart(log_start=log_start))
        # Never backwards: the high watermark of a new leader may be behind, and committed records stay committed.
        if high_watermark > self.high_watermark:
            self.high_watermark = high_watermark
            effects.append(HighWatermarkMoved(high_watermark=high_watermark))
        return effects

    def _capped_high_watermark(self) -> Offset:
        return min(self._leader_high_watermark, self._log_end)
