"""A partition's leader: what is committed, and who is in sync. Events in, effects out; the caller brings the time.

```
            log_start          high_watermark       durable_end    log_end
leader          |--------------------|--------------------|-----------|
follower            |----------------------------|  what its fetches say it has
```
Committed is what every member of the maximal ISR has, the leader included; nothing is while the ISR is too small. A
leader lives for one leader epoch. When it is elected again in another one, it begins again, with the high watermark it
had: what followers said in the old epoch may have been cut off since.
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
from respool.replication.closest_replica import closest_replica
from respool.replication.effects import (
    BeginEpoch,
    HighWatermarkMoved,
    IsrChanged,
    LeaderEffect,
    LowWatermarkMoved,
    ProposeIsr,
    SteppedDown,
)
from respool.replication.followers import Followers
from respool.replication.in_sync_set import InSyncSet
from respool.replication.remote_replica import ReplicaLag


def may_lead(me: BrokerId, image: PartitionImage, *, last_epoch: LeaderEpoch) -> bool:
    """Whether to begin leading by this image; `last_epoch` is the last one in the log.

    A broker that crashes and is back before anybody noticed finds itself the leader still. It may have lost records
    that followers have, and would write others under the same offsets and epoch, which no comparison of epochs would
    find. So a broker gives up what it led before it registers again. This is the second lock on the same door: the
    epoch was entered in the log when this broker began to lead in it, so it leads only in epochs it does not know.
    """
    if image.leader != me:
        return False
    if image.replicas == (me,):
        # Nobody else has any of its records. So a single node goes on in the epoch it always had.
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
        """`durable_end` is what counts as had here: the synced end, or under flush=os and interval the log's end."""
        assert image.leader == me, f"broker {me} is to lead, the leader is {image.leader}"
        assert log_start <= high_watermark <= log_end
        assert durable_end <= log_end
        self.me = me
        self.leader_epoch = image.leader_epoch
        self.first_offset_of_epoch = log_end
        # It may be less than what the leader before had committed; never more. It moves when followers fetch.
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
        """The first thing to be carried out. Alone in the ISR, a leader has committed what is durable."""
        # Also without a record: the epoch's first offset must be known to followers (KAFKA-7415).
        begin = BeginEpoch(leader_epoch=self.leader_epoch, first_offset=self.first_offset_of_epoch)
        return [begin, *self._advance(), *self._propose()]

    # -- what others ask ---------------------------------------------------------------------------------------------

    @property
    def image(self) -> PartitionImage:
        """What the store had when last heard of."""
        return self._in_sync.image

    @property
    def in_sync(self) -> frozenset[BrokerId]:
        """The maximal ISR: all who are in it, or may be by now."""
        return self._in_sync.maximal

    @property
    def is_end_known(self) -> bool:
        """Whether the high watermark is as far as any leader before has told anybody.

        Until then who asks for the latest offset gets OFFSET_NOT_AVAILABLE, lest it go back before a client's eyes.
        """
        return self.high_watermark >= self.first_offset_of_epoch

    @property
    def low_watermark(self) -> Offset:
        """Everyone who fetches or may be elected has deleted what is before it; -1 while some have not said."""
        return self._low_watermark

    def check_writable(self) -> None:
        """Refuse acks=all before anything is written.

        Raises:
            NotLeader: not any more.
            NotEnoughReplicas: fewer are in sync than the topic asks for.
        """
        self._check_leading()
        self._check_min_isr()

    def is_committed(self, next_offset: Offset) -> bool:
        """Whether acks=all may be answered for all before `next_offset`."""
        return next_offset <= self.high_watermark

    def closest_replica(self, *, client_rack: str | None, offset: Offset) -> BrokerId | None:
        """The follower a consumer had better read from at `offset`; None: this broker is as good."""
        me = self._followers.brokers.get(self.me)
        return closest_replica(
            client_rack=client_rack,
            leader_rack=me.rack if me is not None else None,
            offset=offset,
            followers=self._followers.readable(self.image.isr),
        )

    def replica_lags(self, now_ms: int) -> list[ReplicaLag]:
        """How far each follower is behind."""
        return self._followers.lags(
            leader_end=self._log_end, log_start=self._log_start, now_ms=now_ms
        )

    # -- the own log -------------------------------------------------------------------------------------------------

    def on_append(self, log_end: Offset) -> list[LeaderEffect]:
        assert log_end >= self._log_end, f"log end {log_end} after {self._log_end}"
        self._log_end = log_end
        # The leader's own replica counts up to its durable end, so nothing new is committed yet.
        return []

    def on_durable(self, end: Offset) -> list[LeaderEffect]:
        """Everything before `end` counts as had here. Under flush=os and interval that is so once it is appended."""
        if not self.takes_as_durable(end):
            return []
        return [HighWatermarkMoved(high_watermark=self.high_watermark)]

    def takes_as_durable(self, end: Offset) -> bool:
        """The same for every batch: whether the high watermark has moved."""
        assert end <= self._log_end, f"durable to {end}, log end {self._log_end}"
        if end <= self._durable_end:
            return False
        self._durable_end = end
        return self._moves_on()

    def on_log_start(self, log_start: Offset) -> list[LeaderEffect]:
        """Records were deleted here. Followers hear of it with their next fetch, and say when they have followed."""
        assert self._log_start <= log_start <= self.high_watermark
        self._log_start = log_start
        return self._raise_low_watermark()

    # -- followers ---------------------------------------------------------------------------------------------------

    def check_fetch(
        self, broker: BrokerId, *, broker_epoch: int, leader_epoch: LeaderEpoch
    ) -> None:
        """Before anything is read for a follower.

        Raises:
            NotLeader: not any more; or the broker that asks has crashed since, and this is an old request of it.
            FencedLeaderEpoch, UnknownLeaderEpoch: one of the two brokers is behind.
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
        """A follower asks for more, and the logs agree up to there: so it has everything before `durable_end`.

        Not to be called where the reply has an error or a diverging epoch: such a fetch says nothing.

        Raises:
            as `check_fetch`; nothing has changed then.
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
        # In the ISR with less than what is committed: it has lost something.
        if broker not in self.image.isr or durable_end < self.high_watermark:
            effects += self._propose()
        return effects

    # -- the cluster -------------------------------------------------------------------------------------------------

    def on_tick(self, now_ms: int) -> list[LeaderEffect]:
        """Called a few times within `lag_ms_max`."""
        self._followers.on_time(now_ms)
        if not self.is_leading:
            return []
        # Someone may have stopped being worth waiting for.
        return [*self._raise_low_watermark(), *self._advance(), *self._propose()]

    def on_brokers(self, brokers: Mapping[BrokerId, BrokerEndpoint]) -> list[LeaderEffect]:
        """These are registered now. Whoever is not is dead, or fenced."""
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
        """This is, or was, in the store: somebody's write, our own, or what a read found after a failed write."""
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
        """A guard did not hold, nothing was written. Nothing else is proposed until `on_image`."""
        self._in_sync.on_refused(proposal)

    def on_isr_unknown(self, proposal: ProposeIsr) -> None:
        """The store did not answer. Nothing else is proposed until `on_image`."""
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
        """Raise the high watermark to what everyone has who counts."""
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
        """It changes seldom, and is asked about for every batch."""
        image = self._in_sync.image
        self.is_min_isr_met = len(image.isr) >= image.min_isr(self._min_isr)
        # While this is true nothing is committed.
        self._is_held = self._holds_below_min_isr() or self._holds_while_some_are_eligible()

    def _holds_below_min_isr(self) -> bool:
        return not self.is_min_isr_met

    def _holds_while_some_are_eligible(self) -> bool:
        # Also after min.insync.replicas was lowered: this leader must first remove them from the ELR.
        return bool(self.image.elr)

    def _propose(self) -> list[LeaderEffect]:
        """Ask for the ISR, and the ELR, that ought to be, unless they are, or have just been asked for."""
        in_sync = self._in_sync
        if not self.is_leading or not in_sync.may_propose:
            return []
        image = in_sync.image
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
        # A fetch from before its log failed may come late.
        joining = followers.joiners(
            {*image.isr, *image.offline},
            # An earlier leader may have waited for this one to delete, and not for who was not in sync.
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
        """Members that leave an ISR below min.insync.replicas stay eligible (ELR), unless they lost records."""
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
