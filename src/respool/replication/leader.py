"""The leader's replication state machine: the high watermark and the ISR. Events in, effects out; no clock, no I/O.

```
            log_start          high_watermark       durable_end    log_end
leader          |--------------------|--------------------|-----------|
follower            |----------------------------|  as reported by its fetches
```
A record is committed once every member of the maximal ISR, including the leader, has it; nothing is committed while the
ISR is smaller than min.insync.replicas. A `Leader` exists for one leader epoch. A broker that is elected again starts
with a new one and its last high watermark: what followers reported in the old epoch may have been truncated since.
"""

from collections.abc import Collection, Mapping

from respool.model.cluster import BrokerEndpoint, PartitionImage
from respool.model.errors import (
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotLeader,
    UnknownLeaderEpoch,
)
from respool.model.ids import BrokerId, LeaderEpoch, Offset
from respool.replication.effects import (
    BeginEpoch,
    HighWatermarkMoved,
    IsrChanged,
    LeaderEffect,
    LowWatermarkMoved,
    ProposeIsr,
    SteppedDown,
)
from respool.replication.followers import Followers, closest_replica
from respool.replication.in_sync_set import InSyncSet
from respool.replication.remote_replica import ReplicaLag


def may_lead(me: BrokerId, image: PartitionImage, *, last_epoch: LeaderEpoch) -> bool:
    """True if this broker may become leader by this image; `last_epoch` is the last epoch in its log.

    A broker that crashes and restarts quickly may still be the leader in the store. It may have lost records that
    followers have, and would write different records with the same offsets and epoch, which no comparison of epochs
    detects. So a broker resigns its leaderships before it registers again. This check is a second safeguard: a leader
    writes its epoch to its log, so a broker never leads in an epoch that its log already has.
    """
    if image.leader != me:
        return False
    if image.replicas == (me,):
        # The only replica: no other log can diverge, so a single broker keeps its epoch.
        return image.leader_epoch >= last_epoch
    return _leads_an_epoch_once(image, last_epoch)


def _leads_an_epoch_once(image: PartitionImage, last_epoch: LeaderEpoch) -> bool:
    return image.leader_epoch > last_epoch


class Leader:
    def __init__(
        self,
        me: BrokerId,
        image: PartitionImage,
        *,
        log_start: Offset,
        log_end: Offset,
        durable_end: Offset,
        high_watermark: Offset,
        min_isr: int,
        lag_ms_max: int,
        brokers: Mapping[BrokerId, BrokerEndpoint],
        now_ms: int,
    ) -> None:
        """`durable_end` is the synced end with respool.flush=always; else the log end."""
        assert image.leader == me, f"broker {me} becomes leader, the leader is {image.leader}"
        assert log_start <= high_watermark <= log_end
        assert durable_end <= log_end
        self.me = me
        self.leader_epoch = image.leader_epoch
        self.first_offset_of_epoch = log_end
        # May be behind what the previous leader committed, but never ahead of it. It advances when followers fetch.
        self.high_watermark = high_watermark
        self.is_leading = True
        self._min_isr = min_isr
        self._log_start = self._first_log_start = log_start
        self._log_end = log_end
        self._durable_end = durable_end
        self._in_sync = InSyncSet(image)
        self._followers = Followers(
            me,
            image,
            brokers=brokers,
            lag_ms_max=lag_ms_max,
            first_offset_of_epoch=log_end,
            now_ms=now_ms,
        )
        self._low_watermark = self._lowest_log_start()
        self._look_at_isr()

    def begin(self) -> list[LeaderEffect]:
        """The first effects to carry out. A leader alone in the ISR has committed all durable records."""
        # Even without a record: followers must know the epoch's first offset (KAFKA-7415).
        begin = BeginEpoch(leader_epoch=self.leader_epoch, first_offset=self.first_offset_of_epoch)
        return [begin, *self._advance(), *self._propose()]

    # -- queries -----------------------------------------------------------------------------------------------------

    @property
    def image(self) -> PartitionImage:
        """The last known state of the partition in the metadata store."""
        return self._in_sync.image

    @property
    def in_sync(self) -> frozenset[BrokerId]:
        """The maximal ISR: all replicas that are in the ISR, or may have been added by now."""
        return self._in_sync.maximal

    @property
    def durable_end(self) -> Offset:
        """The end of this broker's own durable log, as last reported: an acks=1 reply needs no other replica."""
        return self._durable_end

    @property
    def is_end_known(self) -> bool:
        """True once the high watermark is at least as high as any that an earlier leader reported.

        Until then, ListOffsets(latest) replies with OFFSET_NOT_AVAILABLE, so that clients never see it go backwards.
        """
        return self.high_watermark >= self.first_offset_of_epoch

    @property
    def low_watermark(self) -> Offset:
        """All live or electable replicas have deleted the records below it; -1 while a log start is unknown."""
        return self._low_watermark

    def check_writable(self) -> None:
        """Check before an append with acks=all that it may succeed.

        Raises:
            NotLeader: this broker has been deposed.
            NotEnoughReplicas: the ISR is smaller than min.insync.replicas.
        """
        self._check_leading()
        self._check_min_isr()

    def is_committed(self, next_offset: Offset) -> bool:
        """True if an acks=all reply may be sent for records below `next_offset`."""
        return next_offset <= self.high_watermark

    def closest_replica(self, *, client_rack: str | None, offset: Offset) -> BrokerId | None:
        """The follower that a consumer should read from at `offset` (KIP-392); None: the leader."""
        me = self._followers.brokers.get(self.me)
        return closest_replica(
            client_rack=client_rack,
            leader_rack=me.rack if me is not None else None,
            offset=offset,
            followers=self._followers.readable(self.image.isr),
        )

    def replica_lags(self, now_ms: int) -> list[ReplicaLag]:
        """The lag of each follower."""
        return self._followers.lags(
            leader_end=self._log_end, log_start=self._log_start, now_ms=now_ms
        )

    # -- the leader's own log ----------------------------------------------------------------------------------------

    def on_append(self, log_end: Offset) -> list[LeaderEffect]:
        assert log_end >= self._log_end, f"log end {log_end} after {self._log_end}"
        self._log_end = log_end
        # The leader's own replica counts up to its durable end, so an append alone commits nothing.
        return []

    def on_durable(self, end: Offset) -> list[LeaderEffect]:
        """The leader's log is durable up to `end`; unless respool.flush=always, that is the log end."""
        if not self.takes_as_durable(end):
            return []
        return [HighWatermarkMoved(high_watermark=self.high_watermark)]

    def takes_as_durable(self, end: Offset) -> bool:
        """Like `on_durable`, for every batch: return True if the high watermark has moved."""
        assert end <= self._log_end, f"durable to {end}, log end {self._log_end}"
        if end <= self._durable_end:
            return False
        self._durable_end = end
        return self._moves_on()

    def on_log_start(self, log_start: Offset) -> list[LeaderEffect]:
        """Records were deleted here. Followers learn of it with their next fetch and report their new log start."""
        assert self._log_start <= log_start <= self.high_watermark
        self._log_start = log_start
        return self._raise_low_watermark()

    # -- followers ---------------------------------------------------------------------------------------------------

    def check_fetch(
        self, broker: BrokerId, *, broker_epoch: int, leader_epoch: LeaderEpoch
    ) -> None:
        """Check a follower's fetch before serving it.

        Raises:
            NotLeader: this broker has been deposed, or the follower has crashed since it sent this request.
            FencedLeaderEpoch, UnknownLeaderEpoch: one of the two brokers has an old leader epoch.
        """
        self._check_leading()
        self._check_epoch(leader_epoch)
        self._followers.check(broker, broker_epoch)

    def on_follower_fetch(
        self,
        broker: BrokerId,
        *,
        broker_epoch: int,
        leader_epoch: LeaderEpoch,
        durable_end: Offset,
        log_start: Offset,
        now_ms: int,
    ) -> list[LeaderEffect]:
        """A follower fetches from an offset up to which the logs agree, so it has all records below `durable_end`.

        Do not call it if the reply has an error or a diverging epoch: such a fetch proves nothing about the follower's
        log.

        Raises:
            RequestError: as `check_fetch`; nothing has changed.
        """
        self.check_fetch(broker, broker_epoch=broker_epoch, leader_epoch=leader_epoch)
        self._assert_agrees(durable_end)
        self._followers.on_time(now_ms)
        follower = self._followers[broker]
        has_log_start_moved = follower.log_start != log_start
        follower.on_fetch(
            broker_epoch=broker_epoch,
            log_end=durable_end,
            log_start=log_start,
            leader_end=self._log_end,
            now_ms=now_ms,
        )
        effects = self._advance()
        if has_log_start_moved:
            effects += self._raise_low_watermark()
        # A member of the ISR that lacks committed records has lost them.
        if broker not in self.image.isr or durable_end < self.high_watermark:
            effects += self._propose()
        return effects

    # -- the cluster -------------------------------------------------------------------------------------------------

    def on_tick(self, now_ms: int) -> list[LeaderEffect]:
        """Called several times per `lag_ms_max`."""
        self._followers.on_time(now_ms)
        if not self.is_leading:
            return []
        # A replica may have begun to lag, so that it no longer holds back the watermarks.
        return [*self._raise_low_watermark(), *self._advance(), *self._propose()]

    def on_brokers(self, brokers: Mapping[BrokerId, BrokerEndpoint]) -> list[LeaderEffect]:
        """The registered brokers have changed. All others are dead or fenced."""
        self._followers.brokers = brokers
        if not self.is_leading:
            return []
        return [*self._raise_low_watermark(), *self._advance(), *self._propose()]

    def on_settings(self, *, min_isr: int, lag_ms_max: int) -> list[LeaderEffect]:
        self._min_isr = min_isr
        self._followers.lag_ms_max = lag_ms_max
        self._look_at_isr()
        if not self.is_leading:
            return []
        return [*self._advance(), *self._propose()]

    def on_image(self, image: PartitionImage) -> list[LeaderEffect]:
        """Apply a state of the partition from the store: written by any broker, or read after a failed write."""
        if not self.is_leading:
            return []
        if image.leader_epoch != self.leader_epoch:
            return self._step_down(image)
        before = self.image
        if self._in_sync.on_image(image):
            assert image.leader == self.me, f"leader {image.leader} in epoch {self.leader_epoch}"
            self._followers.on_image(image, before)
            self._look_at_isr()
        effects: list[LeaderEffect] = []
        if self.image.isr != before.isr:
            effects.append(IsrChanged(isr=self.image.isr, is_min_isr_met=self.is_min_isr_met))
        return [*effects, *self._raise_low_watermark(), *self._advance(), *self._propose()]

    def on_isr_refused(self, proposal: ProposeIsr) -> None:
        """A guard failed, so nothing was written. The next proposal waits for `on_image`."""
        self._in_sync.on_refused(proposal)

    def on_isr_unknown(self, proposal: ProposeIsr) -> None:
        """The store did not reply. The next proposal waits for `on_image`."""
        self._in_sync.on_unknown(proposal)

    # -- deciding ----------------------------------------------------------------------------------------------------

    def _check_leading(self) -> None:
        if not self.is_leading:
            raise NotLeader(f"broker {self.me} no longer leads in epoch {self.leader_epoch}")

    def _check_epoch(self, leader_epoch: LeaderEpoch) -> None:
        if leader_epoch != self.leader_epoch:
            error = FencedLeaderEpoch if leader_epoch < self.leader_epoch else UnknownLeaderEpoch
            raise error(f"leader epoch {leader_epoch}, here {self.leader_epoch}")

    def _check_min_isr(self) -> None:
        if not self.is_min_isr_met:
            raise NotEnoughReplicas(
                f"{len(self.image.isr)} in sync, min.insync.replicas is {self._min_isr}"
            )

    def _assert_agrees(self, durable_end: Offset) -> None:
        assert durable_end <= self._log_end, f"durable to {durable_end}, log end {self._log_end}"

    def _step_down(self, image: PartitionImage) -> list[LeaderEffect]:
        if image.leader_epoch < self.leader_epoch:
            return []
        self.is_leading = False
        return [SteppedDown(image=image)]

    def _advance(self) -> list[LeaderEffect]:
        """Raise the high watermark to the smallest end of the replicas that count."""
        return [HighWatermarkMoved(high_watermark=self.high_watermark)] if self._moves_on() else []

    def _moves_on(self) -> bool:
        if not self.is_leading or self._is_held:
            return False
        end = self._followers.slowest_end(
            self._durable_end, in_sync=self._in_sync.maximal, leader_end=self._log_end
        )
        # Never backwards: consumers may already have read up to the old value.
        if end <= self.high_watermark:
            return False
        self.high_watermark = end
        return True

    def _look_at_isr(self) -> None:
        """Cache what every append needs to know about the ISR, which rarely changes."""
        image = self._in_sync.image
        self.is_min_isr_met = len(image.isr) >= image.min_isr(self._min_isr)
        # While this is true, nothing is committed.
        self._is_held = self._holds_below_min_isr() or self._holds_while_some_are_eligible()

    def _holds_below_min_isr(self) -> bool:
        return not self.is_min_isr_met

    def _holds_while_some_are_eligible(self) -> bool:
        # Even after min.insync.replicas was lowered: this leader must first remove them from the ELR.
        return bool(self.image.elr)

    def _propose(self) -> list[LeaderEffect]:
        """Propose the right ISR and ELR, unless the store already has them or a proposal is in flight."""
        in_sync = self._in_sync
        if not self.is_leading or not in_sync.may_propose:
            return []
        image = in_sync.image
        if image.replicas == image.isr == (self.me,) and not (
            image.offline or image.elr or in_sync.must_rewrite
        ):
            # The usual case on a single broker.
            return []
        followers, high_watermark = self._followers, self.high_watermark
        lost = {
            one
            for one in image.isr
            if one in image.offline or followers.has_lost_records(one, high_watermark)
        }
        staying = (
            broker
            for broker in image.isr
            if broker == self.me
            or not (broker in lost or followers.is_lagging(broker, self._log_end))
        )
        # An offline replica does not join: its fetch may date from before its log failed.
        joining = followers.joiners(
            {*image.isr, *image.offline},
            # An earlier leader waited for this replica to delete records, but not for replicas outside the ISR.
            low_watermark=max(self._low_watermark, self._first_log_start),
            high_watermark=high_watermark,
        )
        wanted = self._with_isr((*staying, *(broker for broker, _ in joining)), lost)
        if (
            set(wanted.isr) == set(image.isr)
            and set(wanted.elr) == set(image.elr)
            and not in_sync.must_rewrite
        ):
            return []
        return [in_sync.propose(wanted, joiners=joining)]

    def _with_isr(self, isr: tuple[BrokerId, ...], lost: Collection[BrokerId]) -> PartitionImage:
        """Members that leave an ISR below min.insync.replicas remain eligible (ELR), unless they have lost records."""
        return self.image.with_isr(isr, min_isr=self._min_isr, lost=lost)

    def _raise_low_watermark(self) -> list[LeaderEffect]:
        lowest = self._lowest_log_start()
        if lowest <= self._low_watermark:
            return []
        self._low_watermark = lowest
        return [LowWatermarkMoved(low_watermark=lowest)]

    def _lowest_log_start(self) -> Offset:
        return self._followers.lowest_log_start(
            self._log_start, electable={*self._in_sync.maximal, *self.image.elr}
        )
