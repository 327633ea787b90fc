"""A broker with one partition: it does what the machines want, on a log in memory, as `broker/` does on a disk."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from replication.sim_log import Entry, MemoryLog
from respool.model.cluster import BrokerEndpoint, PartitionImage
from respool.model.errors import OffsetOutOfRange, RequestError
from respool.model.ids import BrokerId, LeaderEpoch, Offset
from respool.replication.divergence import EndOfEpoch, diverging_epoch
from respool.replication.effects import (
    Append,
    AskLeaderRange,
    BeginEpoch,
    FollowerEffect,
    HighWatermarkMoved,
    LeaderEffect,
    LookUpLeader,
    LowWatermarkMoved,
    ProposeIsr,
    RaiseLogStart,
    ResetLogTo,
    SteppedDown,
    TruncateTo,
    WaitFor,
)
from respool.replication.follower import Fetched, FetchFrom, Follower
from respool.replication.leader import Leader, may_lead

if TYPE_CHECKING:
    from replication.sim_world import World


@dataclass(slots=True)
class PendingProduce:
    offset: int
    value: int
    # The last offset that was acknowledged when it was sent: its own is larger.
    acknowledged_before: int


class Replica:
    def __init__(self, world: "World", me: BrokerId) -> None:
        self.world = world
        self.me = me
        self.log = MemoryLog()
        self.is_up = False
        # How its last run ended.
        self.was_stopped_cleanly = True
        # Frozen until then: everything that reaches it waits.
        self.paused_until_ms = 0
        # Which run of the process it is.
        self.incarnation = 0
        self.broker_epoch = 0
        self.high_watermark = Offset(0)
        # As written down now and then.
        self.high_watermark_checkpoint = Offset(0)
        self.role: Leader | Follower | None = None
        self.image: PartitionImage | None = None
        self.brokers: dict[BrokerId, BrokerEndpoint] = {}
        self._brokers_revision = 0
        self.pending: list[PendingProduce] = []
        self._is_syncing = False
        self._fetch_not_before_ms = 0
        self._is_pump_due = False

    # -- the process -------------------------------------------------------------------------------------------------

    def start(self, broker_epoch: int) -> None:
        self.is_up = True
        self.incarnation += 1
        self.broker_epoch = broker_epoch
        self.role = None
        self.image = None
        self.pending = []
        self._is_syncing = False
        self._is_pump_due = False
        self._fetch_not_before_ms = 0
        log = self.log
        self.high_watermark = Offset(
            max(log.log_start, min(self.high_watermark_checkpoint, log.log_end))
        )
        self.world.after(self.world.rng.randint(5, 50), self, self._tick)

    def stop(self, *, kept_end: Offset | None) -> None:
        """The process ends; with `kept_end`, so does the power, and everything from there on is lost."""
        self.is_up = False
        self.was_stopped_cleanly = kept_end is None
        self.role = None
        self.pending = []
        if kept_end is not None:
            self.log.lose_tail(kept_end)

    def _tick(self) -> None:
        if isinstance(self.role, Leader):
            self._as_leader(self.role.on_tick(self.world.now_ms))
        self._pump()
        self.world.after(self.world.rng.randint(20, 60), self, self._tick)

    def on_settings(self) -> None:
        if isinstance(self.role, Leader):
            world = self.world
            self._as_leader(
                self.role.on_settings(min_isr=world.min_isr, lag_ms_max=world.lag_ms_max)
            )

    def checkpoint_high_watermark(self) -> None:
        self.high_watermark_checkpoint = self.high_watermark

    # -- what the store says -----------------------------------------------------------------------------------------

    def on_store(
        self, revision: int, image: PartitionImage, brokers: dict[BrokerId, BrokerEndpoint]
    ) -> None:
        """A watch, or a read: it may be late, and come after newer ones."""
        if revision > self._brokers_revision:
            self._brokers_revision = revision
            self.brokers = brokers
            if isinstance(self.role, Leader):
                self._as_leader(self.role.on_brokers(brokers))
        self.on_image(image)

    def on_image(self, image: PartitionImage) -> None:
        if isinstance(self.role, Leader):
            # Also what it knows already: that may settle a write.
            self._as_leader(self.role.on_image(image))
        if self.image is not None and image.revision <= self.image.revision:
            return
        self.image = image
        if isinstance(self.role, Leader):
            return
        if self.me not in image.replicas:
            self._drop()
            return
        if may_lead(self.me, image, last_epoch=self.log.last_epoch):
            self._lead(image)
        elif image.leader != self.me:
            self._follow(image)
        else:
            self.role = None

    def _drop(self) -> None:
        """This broker has no replica any more."""
        self.role = None
        self.log.restart_at(Offset(0))
        self.high_watermark = self.high_watermark_checkpoint = Offset(0)

    def _lead(self, image: PartitionImage) -> None:
        world, log = self.world, self.log
        world.checker.on_leader(self.me, self.incarnation, image.leader_epoch, log)
        world.trace("%s leads in epoch %s from %s", self.me, image.leader_epoch, log.log_end)
        leader = Leader(
            self.me,
            image,
            log_start=log.log_start,
            log_end=log.log_end,
            durable_end=self._counted_end(),
            high_watermark=self.high_watermark,
            min_isr=world.min_isr,
            lag_ms_max=world.lag_ms_max,
            brokers=self.brokers,
            now_ms=world.now_ms,
        )
        self.role = leader
        if leader.high_watermark != self.high_watermark:
            self._take_high_watermark(leader.high_watermark)
        self._as_leader(leader.begin())
        self._sync()

    def _follow(self, image: PartitionImage) -> None:
        log = self.log
        if isinstance(self.role, Follower):
            self._as_follower(self.role.on_image(image))
        else:
            self.role = Follower(
                self.me,
                image,
                log_start=log.log_start,
                log_end=log.log_end,
                durable_end=self._counted_end(),
                last_epoch=log.last_epoch,
                high_watermark=self.high_watermark,
                history=log,
            )
            self.on_following(self.role)
        self._sync()
        self._pump()

    def on_following(self, follower: Follower) -> None:
        """Nothing is to be done here; a planted bug does something."""

    # -- durability --------------------------------------------------------------------------------------------------

    def _counted_end(self) -> Offset:
        return self.log.durable_end if self.world.is_synced else self.log.log_end

    def _sync(self) -> None:
        log, world = self.log, self.world
        if not world.is_synced:
            if self.role is not None:
                self._on_durable(log.log_end)
            return
        if self._is_syncing or log.durable_end == log.log_end:
            return
        self._is_syncing = True
        end, truncations = log.log_end, log.truncations

        def synced() -> None:
            self._is_syncing = False
            if log.truncations == truncations:
                log.durable_end = max(log.durable_end, end)
                self._on_durable(log.durable_end)
            self._sync()

        is_slow = self.me in world.slow_disks
        world.after(5000 if is_slow else world.rng.randint(1, world.sync_ms_max), self, synced)

    def _on_durable(self, end: Offset) -> None:
        if isinstance(self.role, Leader):
            self._as_leader(self.role.on_durable(end))
            self._answer()
        elif isinstance(self.role, Follower):
            self.role.on_durable(end)
            self._pump()

    # -- leading -----------------------------------------------------------------------------------------------------

    def produce(self, value: int, *, wants_all: bool) -> bool:
        """Append here; False when it is refused."""
        leader, world = self.role, self.world
        if not isinstance(leader, Leader):
            return False
        try:
            if wants_all:
                leader.check_writable()
        except RequestError:
            return False
        offset = self.log.log_end
        self.log.append([(leader.leader_epoch, value)])
        if wants_all:
            self.pending.append(PendingProduce(offset, value, world.checker.last_acknowledged))
        self._as_leader(leader.on_append(self.log.log_end))
        self._answer()
        self._sync()
        return True

    def delete_records(self, before: Offset) -> None:
        leader = self.role
        if not isinstance(leader, Leader) or before <= self.log.log_start:
            return
        self.log.raise_log_start(min(before, self.high_watermark))
        self._as_leader(leader.on_log_start(self.log.log_start))

    def answer_fetch(
        self, who: BrokerId, broker_epoch: int, asked: FetchFrom
    ) -> tuple[Fetched, Sequence[Entry]]:
        leader, log = self.role, self.log
        if not isinstance(leader, Leader):
            return Fetched(error=6), ()
        try:
            leader.check_fetch(who, broker_epoch=broker_epoch, leader_epoch=asked.leader_epoch)
        except RequestError as error:
            return Fetched(error=error.code), ()
        diverging = diverging_epoch(
            log, fetch_offset=asked.offset, last_fetched_epoch=asked.last_fetched_epoch
        )
        is_in_range = log.log_start <= asked.offset <= log.log_end
        if self.counts(diverging, is_in_range):
            effects = leader.on_follower_fetch(
                who,
                broker_epoch=broker_epoch,
                leader_epoch=asked.leader_epoch,
                durable_end=asked.durable_end,
                log_start=asked.log_start,
                now_ms=self.world.now_ms,
            )
            self._as_leader(effects)
            self._answer()
        if asked.offset < log.log_start or (diverging is None and not is_in_range):
            return Fetched(error=OffsetOutOfRange.code), ()
        records: Sequence[Entry] = ()
        if diverging is None:
            records = log.read(asked.offset, self.world.rng.randint(1, 8))
        reply = Fetched(
            has_records=bool(records),
            diverging=diverging,
            high_watermark=leader.high_watermark,
            log_start=log.log_start,
        )
        return reply, records

    def counts(self, diverging: EndOfEpoch | None, is_in_range: bool) -> bool:
        """Whether a fetch says something about the follower's log."""
        return diverging is None and is_in_range

    def _answer(self) -> None:
        leader = self.role
        if not isinstance(leader, Leader):
            return
        while self.pending and leader.is_committed(Offset(self.pending[0].offset + 1)):
            produce = self.pending.pop(0)
            self.world.on_acknowledged(self, produce)

    def _as_leader(self, effects: list[LeaderEffect]) -> None:
        for effect in effects:
            if isinstance(effect, HighWatermarkMoved):
                self._take_high_watermark(effect.high_watermark)
                self._answer()
            elif isinstance(effect, BeginEpoch):
                assert effect.first_offset == self.log.log_end
                self.log.begin_epoch(effect.leader_epoch)
            elif isinstance(effect, LowWatermarkMoved):
                self.world.checker.on_deleted(effect.low_watermark)
            elif isinstance(effect, ProposeIsr):
                self._write_isr(effect)
            elif isinstance(effect, SteppedDown):
                self.world.trace("%s steps down", self.me)
                self.role = None
                self.pending = []

    def _write_isr(self, proposal: ProposeIsr) -> None:
        leader = self.role
        assert isinstance(leader, Leader)

        def on_written(revision: int) -> None:
            self.on_image(replace(proposal.image, revision=revision))

        def on_failed(*, is_known: bool) -> None:
            if is_known:
                leader.on_isr_refused(proposal)
            else:
                leader.on_isr_unknown(proposal)
            self.world.read_store(self)

        self.world.write_store(self, proposal, on_written=on_written, on_failed=on_failed)

    # -- following ---------------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Ask for more, if it is time."""
        follower, world = self.role, self.world
        if not isinstance(follower, Follower):
            return
        if world.now_ms < self._fetch_not_before_ms:
            return
        asked = follower.next_fetch()
        if asked is None:
            return

        def on_reply(reply: Fetched, records: Sequence[Entry]) -> None:
            if self.role is follower:
                self._on_reply(follower, asked, reply, records)

        def on_lost() -> None:
            if self.role is follower:
                self._as_follower(follower.on_lost(asked))
                self._pump()

        world.fetch(self, asked, on_reply=on_reply, on_lost=on_lost)

    def _on_reply(
        self, follower: Follower, asked: FetchFrom, reply: Fetched, records: Sequence[Entry]
    ) -> None:
        effects = follower.on_fetched(asked, reply)
        self._as_follower(effects, records)
        if not records and not effects:
            # Nothing new: the real thing would wait at the leader.
            self._fetch_not_before_ms = self.world.now_ms + self.world.rng.randint(2, 25)
        self._pump()

    def _as_follower(self, effects: list[FollowerEffect], records: Sequence[Entry] = ()) -> None:
        follower, log = self.role, self.log
        assert isinstance(follower, Follower)
        for effect in effects:
            if isinstance(effect, Append):
                log.append(list(records))
                self._as_follower(follower.on_appended(log.log_end, last_epoch=log.last_epoch))
                self._sync()
            elif isinstance(effect, TruncateTo):
                self._cut(effect.offset)
                log.truncate_to(effect.offset)
                self._on_truncated(follower)
            elif isinstance(effect, ResetLogTo):
                self._cut(effect.offset, is_anew=True)
                log.restart_at(effect.offset)
                self._on_truncated(follower)
            elif isinstance(effect, HighWatermarkMoved):
                self._take_high_watermark(effect.high_watermark)
            elif isinstance(effect, RaiseLogStart):
                log.raise_log_start(effect.log_start)
                follower.on_log_start(log.log_start)
            elif isinstance(effect, AskLeaderRange):
                self._ask_range(follower, effect)
            elif isinstance(effect, WaitFor):
                self._fetch_not_before_ms = self.world.now_ms + effect.delay_ms
            elif isinstance(effect, LookUpLeader):
                self.world.read_store(self)

    def _cut(self, offset: Offset, *, is_anew: bool = False) -> None:
        self.world.trace("%s cuts %s to %s", self.me, self.log.log_end, offset)
        self.world.on_truncating(self, offset, is_anew=is_anew)

    def _on_truncated(self, follower: Follower) -> None:
        log = self.log
        self.high_watermark_checkpoint = min(self.high_watermark_checkpoint, log.log_end)
        effects = follower.on_truncated(
            log_start=log.log_start,
            log_end=log.log_end,
            durable_end=self._counted_end(),
            last_epoch=log.last_epoch,
        )
        self._as_follower(effects)

    def _ask_range(self, follower: Follower, effect: AskLeaderRange) -> None:
        epoch: LeaderEpoch = effect.leader_epoch

        def on_reply(log_start: Offset, log_end: Offset) -> None:
            if self.role is follower:
                self._as_follower(
                    follower.on_leader_range(epoch, log_start=log_start, log_end=log_end)
                )
                self._pump()

        def on_lost() -> None:
            if self.role is follower:
                self._as_follower(follower.on_range_lost(epoch))

        self.world.ask_range(self, effect, on_reply=on_reply, on_lost=on_lost)

    def _take_high_watermark(self, high_watermark: Offset) -> None:
        before = self.high_watermark
        self.high_watermark = high_watermark
        self.world.on_high_watermark(self, before)
