"""A partition's role on this broker: leader, follower, or none.

A leader that also leads in the next epoch, for example after a replica was removed, makes an epoch transition: requests
that wait for a commit continue to wait, and new writes wait until the new epoch is entered. An error instead would mean
that nothing was written: a client with several requests in flight would see one refused and the next one out of order,
bump its producer epoch, and write again what was written already.

The machines of `replication/` decide. This class reports the partition's events to them and carries out their
effects: it moves the high watermark, notifies waiters, and proposes ISR changes. `roles.py` decides which role is taken
when; `replica_fetcher.py` fetches for followers.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from respool.model.cluster import BrokerEndpoint, PartitionImage
from respool.model.errors import NotLeader, RequestError
from respool.model.ids import NO_LEADER_EPOCH, BrokerId, LeaderEpoch, Offset, TopicPartition
from respool.replication.effects import (
    HighWatermarkMoved,
    LeaderEffect,
    LowWatermarkMoved,
    ProposeIsr,
    SteppedDown,
)
from respool.replication.follower import Follower
from respool.replication.leader import Leader


class CommitPoint(Protocol):
    """The part of `Partition` that a role acts on."""

    def advance_to(self, high_watermark: Offset, byte_count: int | None = None) -> None:
        """Everything below is committed: `byte_count` bytes more than before, if known."""

    def on_leader_durable(self, durable_end: Offset) -> None:
        """The leader's own replica is durable up to `durable_end`; the high watermark has moved already, if it can."""

    def on_deleted_everywhere(self, low_watermark: Offset) -> None: ...

    def fail_waiters(self, error: RequestError) -> None: ...

    def wake_readers(self) -> None: ...


class PartitionRole:
    def __init__(
        self,
        name: TopicPartition,
        committed: CommitPoint,
        *,
        propose: Callable[[Leader, ProposeIsr], None],
    ) -> None:
        """`propose` writes a leader's proposed ISR change."""
        # At most one of them is set; none while the broker has no role or is changing it.
        self.leader: Leader | None = None
        self.follower: Follower | None = None
        self.leader_epoch = NO_LEADER_EPOCH
        # True if there are other replicas, or may be.
        self.is_replicated = False
        # Set during an epoch transition; done when the broker leads in the new epoch or has lost leadership.
        self.epoch_transition: asyncio.Future[None] | None = None
        # Called when a follower may fetch again, and when it stops following.
        self.on_follower_ready: Callable[[], None] = lambda: None
        self._name = name
        self._committed = committed
        self._propose = propose

    # -- taking and ending roles -------------------------------------------------------------------------------------

    def become_leader(
        self, leader: Leader, effects: Iterable[LeaderEffect], *, durable_end: Offset
    ) -> None:
        """Become the leader, and carry out the leader's first effects."""
        self._expect_none()
        self.leader, self.leader_epoch = leader, leader.leader_epoch
        self._take_image(leader.image)
        self._carry_out(effects)
        self.on_durable(durable_end)
        # What was synced during the epoch transition was not reported.
        self._committed.on_leader_durable(leader.durable_end)
        # Deletions may have waited in the previous epoch for a replica that has been removed since.
        self._committed.on_deleted_everywhere(leader.low_watermark)
        self.end_epoch_transition()

    def become_follower(self, follower: Follower) -> None:
        """Become a follower."""
        self._expect_none()
        self.follower = follower
        self._take_image(follower.image)

    def resign(self, why: str) -> None:
        """End the role. Waiting clients get an error and look up the leader."""
        self.leader = self.follower = None
        self._committed.fail_waiters(NotLeader(f"{self._name}: {why}"))

    def end_epoch_transition(self) -> None:
        """End the epoch transition, so that waiting requests check the leader again."""
        epoch_transition, self.epoch_transition = self.epoch_transition, None
        if epoch_transition is not None:
            epoch_transition.set_result(None)

    def leading(self) -> Leader:
        """Raises:
        NotLeader: another broker leads the partition, or there is no leader.
        """
        # Read once: a fetch in another thread calls this too.
        leader = self.leader
        if leader is None:
            raise NotLeader(f"{self._name} is led by another broker")
        return leader

    # -- events of the cluster ---------------------------------------------------------------------------------------

    def on_image(self, me: BrokerId, image: PartitionImage) -> None:
        """Apply the partition's new image. A role that it ends is ended immediately; `Roles` takes the new one."""
        if self.leader is not None:
            is_next = self._is_next_of(me, image)
            self._take_image(image)
            effects = self.leader.on_image(image)
            if is_next and any(isinstance(one, SteppedDown) for one in effects):
                self._begin_epoch_transition()
            else:
                self._carry_out(effects)
        elif self.epoch_transition is not None:
            if self._is_next_of(me, image):
                self._take_image(image)
            else:
                self.resign(f"broker {image.leader} leads it now")
        elif self.follower is not None:
            if image.leader == me:
                self.resign("it is about to lead")
            else:
                follow_up = self.follower.on_image(image)
                assert not follow_up, f"{self._name}: a follower does nothing by an image alone"
                self._take_image(image)

    def on_fenced(self) -> None:
        """The lease may have expired: waiting clients look up the leader. The role stays until the image ends it."""
        self._committed.fail_waiters(NotLeader(f"{self._name}: this broker's lease has run out"))

    def on_brokers(self, brokers: Mapping[BrokerId, BrokerEndpoint]) -> None:
        # Also with a single replica: if replicas are added later, they must be known to run.
        if self.leader is not None:
            self._carry_out(self.leader.on_brokers(brokers))

    def on_tick(self, now_ms: int) -> None:
        if self.leader is not None and self.is_replicated:
            self._carry_out(self.leader.on_tick(now_ms))

    def on_settings(self, *, min_isr: int, lag_ms_max: int) -> None:
        if self.leader is not None:
            self._carry_out(self.leader.on_settings(min_isr=min_isr, lag_ms_max=lag_ms_max))

    def on_follower_fetch(
        self,
        broker: BrokerId,
        *,
        broker_epoch: int,
        leader_epoch: LeaderEpoch,
        durable_end: Offset,
        log_start: Offset,
        now_ms: int,
    ) -> None:
        """See `Leader.on_follower_fetch`."""
        if self.leader is not None:
            effects = self.leader.on_follower_fetch(
                broker,
                broker_epoch=broker_epoch,
                leader_epoch=leader_epoch,
                durable_end=durable_end,
                log_start=log_start,
                now_ms=now_ms,
            )
            self._carry_out(effects)

    # -- events of the log -------------------------------------------------------------------------------------------

    def on_append(self, log_end: Offset) -> None:
        # Nearly always there are no effects: the appended batch is not durable yet.
        if self.leader is not None and (effects := self.leader.on_append(log_end)):
            self._carry_out(effects)

    def on_durable(self, end: Offset, byte_count: int | None = None) -> None:
        """The local replica is durable up to `end` (`byte_count` bytes, if known)."""
        if self.follower is not None:
            self.follower.on_durable(end)
            self.on_follower_ready()
        elif self.leader is not None:
            if self.leader.takes_as_durable(end):
                self._committed.advance_to(
                    self.leader.high_watermark, None if self.is_replicated else byte_count
                )
            self._committed.on_leader_durable(end)

    def on_log_start(self, log_start: Offset) -> None:
        if self.leader is not None:
            self._carry_out(self.leader.on_log_start(log_start))
        elif self.follower is not None:
            self.follower.on_log_start(log_start)

    # ----------------------------------------------------------------------------------------------------------------

    def _is_next_of(self, me: BrokerId, image: PartitionImage) -> bool:
        """True if this broker also leads in this image, and no other broker can have led in between."""
        return image.leader == me and image.leader_epoch <= self.leader_epoch + 1

    def _begin_epoch_transition(self) -> None:
        self.leader = None
        self.epoch_transition = asyncio.get_running_loop().create_future()
        self._committed.wake_readers()

    def _expect_none(self) -> None:
        assert self.leader is None, f"{self._name} leads"
        assert self.follower is None, f"{self._name} follows"

    def _take_image(self, image: PartitionImage) -> None:
        self.is_replicated = len(image.replicas) > 1
        self.leader_epoch = max(self.leader_epoch, image.leader_epoch)

    def _carry_out(self, effects: Iterable[LeaderEffect]) -> None:
        for effect in effects:
            if isinstance(effect, HighWatermarkMoved):
                self._committed.advance_to(effect.high_watermark)
            elif isinstance(effect, ProposeIsr):
                self._propose(self.leading(), effect)
            elif isinstance(effect, LowWatermarkMoved):
                self._committed.on_deleted_everywhere(effect.low_watermark)
            elif isinstance(effect, SteppedDown):
                self.resign(f"broker {effect.image.leader} leads it now")
