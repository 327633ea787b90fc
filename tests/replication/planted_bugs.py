"""The rules of replication, each of which a planted bug breaks: a simulation that finds none of them proves nothing.

Each function breaks the rule it is named for while its monkeypatch lasts. Each is a mistake that brokers have made; the
numbers are those of the design's list of traps.
"""

import inspect
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import pytest

from replication.sim_replica import Replica
from replication.sim_world import World
from respool.model.cluster import PartitionImage
from respool.model.errors import OffsetOutOfRange
from respool.model.ids import NO_LEADER_EPOCH, BrokerId, LeaderEpoch, Offset
from respool.replication import follower as follower_module
from respool.replication import in_sync_set as in_sync_set_module
from respool.replication import leader as leader_module
from respool.replication.divergence import EndOfEpoch, EpochHistory
from respool.replication.effects import BeginEpoch, FollowerEffect, LeaderEffect, ProposeIsr
from respool.replication.follower import Fetched, FetchFrom, Follower
from respool.replication.followers import Followers
from respool.replication.in_sync_set import InSyncSet
from respool.replication.leader import Leader
from respool.replication.remote_replica import RemoteReplica

Plant: TypeAlias = Callable[[pytest.MonkeyPatch], None]


class StalePatch(Exception):
    """What is patched is not there, or takes other arguments than the patch."""


def plant(patch: pytest.MonkeyPatch, owner: object, name: str, broken: Callable[..., Any]) -> None:
    """Replace a function that carries a rule by one that takes the same arguments.

    Raises:
        StalePatch: there is no such function. It is not an AssertionError, which would count as the bug being found.
    """
    sound = inspect.getattr_static(owner, name, None)
    if not inspect.isfunction(sound):
        raise StalePatch(f"{owner} has no function {name}")
    if list(inspect.signature(sound).parameters) != list(inspect.signature(broken).parameters):
        raise StalePatch(f"{owner}.{name}{inspect.signature(sound)} has other arguments")
    patch.setattr(owner, name, broken)


# -- leader: what is committed


def counts_joiners(patch: pytest.MonkeyPatch) -> None:
    """1: a replica that may have joined the ISR meanwhile counts for the high watermark."""

    def maximal_isr(
        before: frozenset[BrokerId], proposed: Iterable[BrokerId]
    ) -> frozenset[BrokerId]:
        return before

    plant(patch, in_sync_set_module, "maximal_isr", maximal_isr)


def counts_leavers(patch: pytest.MonkeyPatch) -> None:
    """1: a replica that is being removed from the ISR counts until the store has agreed."""

    def maximal_isr(
        before: frozenset[BrokerId], proposed: Iterable[BrokerId]
    ) -> frozenset[BrokerId]:
        return frozenset(proposed)

    plant(patch, in_sync_set_module, "maximal_isr", maximal_isr)


def holds_below_min_isr(patch: pytest.MonkeyPatch) -> None:
    """2: nothing is committed while the ISR is smaller than min.insync.replicas."""
    plant(patch, Leader, "_holds_below_min_isr", lambda self: False)


def keeps_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """3: a new leader keeps the high watermark that it had as a follower."""
    init = Leader.__init__

    def with_log_end(
        self: Leader,
        me: BrokerId,
        image: PartitionImage,
        *,
        log_start: Offset,
        log_end: Offset,
        durable_end: Offset,
        high_watermark: Offset,
        **more: Any,
    ) -> None:
        init(
            self,
            me,
            image,
            log_start=log_start,
            log_end=log_end,
            durable_end=durable_end,
            high_watermark=log_end,
            **more,
        )

    patch.setattr(Leader, "__init__", with_log_end)


def fences_other_epochs(patch: pytest.MonkeyPatch) -> None:
    """10: a fetch of another leader epoch is refused."""
    plant(patch, Leader, "_check_epoch", lambda self, leader_epoch: None)


def counts_agreeing_fetches_only(patch: pytest.MonkeyPatch) -> None:
    """10: a fetch from where the logs have diverged says nothing about the follower's log."""
    plant(patch, Leader, "_assert_agrees", lambda self, durable_end: None)
    plant(patch, Replica, "counts", lambda self, diverging, is_in_range: True)


def holds_while_some_are_eligible(patch: pytest.MonkeyPatch) -> None:
    """17: nothing is committed while there are eligible leaders outside the ISR."""
    plant(patch, Leader, "_holds_while_some_are_eligible", lambda self: False)


def refuses_below_min_isr(patch: pytest.MonkeyPatch) -> None:
    """18: acks=all is refused while the ISR is too small."""
    plant(patch, Leader, "_check_min_isr", lambda self: None)


def answers_when_committed(patch: pytest.MonkeyPatch) -> None:
    """18: acks=all is answered once the high watermark has passed it."""

    def is_committed(self: Leader, next_offset: Offset) -> bool:
        return next_offset <= self._durable_end

    plant(patch, Leader, "is_committed", is_committed)


def counts_own_durable_end(patch: pytest.MonkeyPatch) -> None:
    """20: the leader's own records count once they are durable."""
    append = Leader.on_append

    def on_append(self: Leader, log_end: Offset) -> list[LeaderEffect]:
        return [*append(self, log_end), *self.on_durable(log_end)]

    plant(patch, Leader, "on_append", on_append)


# -- leader: who is in sync


def joins_at_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """11: a joiner has everything below the high watermark."""
    plant(patch, Followers, "_has_high_watermark", lambda self, replica, high_watermark: True)


def joins_after_epoch_start(patch: pytest.MonkeyPatch) -> None:
    """11: and everything that was in the log when this leader began."""
    plant(patch, Followers, "_has_epoch_start", lambda self, replica: True)


def joins_as_registered(patch: pytest.MonkeyPatch) -> None:
    """12: and is the broker that is registered, not one that has crashed since."""

    def is_alive(self: Followers, broker: BrokerId, replica: RemoteReplica) -> bool:
        return replica.broker_epoch is not None

    def unguarded(wanted: PartitionImage, joiners: tuple[tuple[BrokerId, int], ...]) -> ProposeIsr:
        return ProposeIsr(image=wanted)

    plant(patch, Followers, "_check_registration", lambda self, broker, replica, broker_epoch: None)
    plant(patch, Followers, "_is_alive", is_alive)
    plant(patch, in_sync_set_module, "guarded_proposal", unguarded)


def guards_isr_writes(patch: pytest.MonkeyPatch) -> None:
    """13: the ISR is changed only if nobody else has changed the partition."""

    def unguarded(wanted: PartitionImage, joiners: tuple[tuple[BrokerId, int], ...]) -> ProposeIsr:
        return ProposeIsr(image=replace(wanted, revision=0), joiners=joiners)

    plant(patch, in_sync_set_module, "guarded_proposal", unguarded)


def keeps_both_when_unknown(patch: pytest.MonkeyPatch) -> None:
    """13: without an answer from the store, both the old and the new ISR count."""
    plant(patch, InSyncSet, "on_unknown", InSyncSet.on_refused)


def deletes_before_it_leads(patch: pytest.MonkeyPatch) -> None:
    """Records that were reported as deleted are deleted on every replica that may be elected."""

    def must_delete(
        self: Followers,
        broker: BrokerId,
        replica: RemoteReplica,
        electable: Collection[BrokerId],
    ) -> bool:
        return self._fetches(broker, replica)

    plant(patch, Followers, "_must_delete", must_delete)
    plant(patch, Followers, "_has_deleted", lambda self, replica, low_watermark: True)


def keeps_eligible_leaders(patch: pytest.MonkeyPatch) -> None:
    """17: members that leave an ISR that is too small stay eligible."""
    with_isr = Leader._with_isr

    def without_elr(
        self: Leader, isr: tuple[BrokerId, ...], lost: Collection[BrokerId]
    ) -> PartitionImage:
        return replace(with_isr(self, isr, lost), elr=())

    plant(patch, Leader, "_with_isr", without_elr)


# -- leader: beginning and end


def enters_epoch(patch: pytest.MonkeyPatch) -> None:
    """5: a leader enters its epoch in its log before it has any record."""
    begin = Leader.begin
    plant(
        patch,
        Leader,
        "begin",
        lambda self: [effect for effect in begin(self) if not isinstance(effect, BeginEpoch)],
    )


def leads_an_epoch_once(patch: pytest.MonkeyPatch) -> None:
    """After a crash a broker does not continue an epoch that it led: it may lack records that others have."""
    plant(patch, leader_module, "_leads_an_epoch_once", lambda image, last_epoch: True)
    plant(patch, World, "must_give_up", lambda self, broker, wanted: False)


def steps_down(patch: pytest.MonkeyPatch) -> None:
    """23: a deposed leader fails all requests that wait."""
    plant(patch, Leader, "_step_down", lambda self, image: [])


# -- follower


def truncates_by_epoch(patch: pytest.MonkeyPatch) -> None:
    """6: a follower truncates by leader epoch, not to the high watermark."""
    on_image, on_following = Follower.on_image, Replica.on_following

    def cut_on_image(self: Follower, image: PartitionImage) -> list[FollowerEffect]:
        before = self.image.leader_epoch
        effects = on_image(self, image)
        if self.image.leader_epoch > before and not self._is_busy:
            return self._truncate_to(self.high_watermark)
        return effects

    def cut_at_once(self: Replica, follower: Follower) -> None:
        on_following(self, follower)
        self._as_follower(follower._truncate_to(self.high_watermark))

    plant(patch, Follower, "on_image", cut_on_image)
    plant(patch, Follower, "_epoch_to_compare", lambda self: NO_LEADER_EPOCH)
    plant(patch, Replica, "on_following", cut_at_once)


def takes_the_smaller_end(patch: pytest.MonkeyPatch) -> None:
    """6: it takes the smaller one of both logs' ends of the epoch."""

    def agreed_end(history: EpochHistory, theirs: EndOfEpoch, *, log_end: Offset) -> Offset:
        return min(theirs.end, log_end)

    plant(patch, follower_module, "agreed_end", agreed_end)


def compares_in_every_epoch(patch: pytest.MonkeyPatch) -> None:
    """7: it compares epochs again in every epoch, also where the leader's id is the same."""
    compared: WeakKeyDictionary[Follower, tuple[BrokerId, LeaderEpoch]] = WeakKeyDictionary()
    on_fetched, epoch_to_compare = Follower.on_fetched, Follower._epoch_to_compare

    def remember(self: Follower, asked: FetchFrom, reply: Fetched) -> list[FollowerEffect]:
        if self._is_awaited(asked) and reply.error == 0 and reply.diverging is None:
            compared[self] = asked.leader, asked.leader_epoch
        return on_fetched(self, asked, reply)

    def only_for_another_leader(self: Follower) -> LeaderEpoch:
        last_leader, last_epoch = compared.get(self, (None, None))
        if self.image.leader == last_leader and self.image.leader_epoch != last_epoch:
            return NO_LEADER_EPOCH
        return epoch_to_compare(self)

    plant(patch, Follower, "on_fetched", remember)
    plant(patch, Follower, "_epoch_to_compare", only_for_another_leader)


def trims_epochs_at_the_end(patch: pytest.MonkeyPatch) -> None:
    """8: truncating at the log's end still removes epochs without records."""
    cut_to = Follower._truncate_to

    def cut_before_the_end(self: Follower, offset: Offset) -> list[FollowerEffect]:
        return [] if offset >= self._log_end else cut_to(self, offset)

    plant(patch, Follower, "_truncate_to", cut_before_the_end)


def drops_replies_of_other_epochs(patch: pytest.MonkeyPatch) -> None:
    """10: the reply to a fetch of an earlier epoch is dropped."""

    def is_awaited(self: Follower, asked: FetchFrom) -> bool:
        return asked.offset == self._log_end and not self._is_busy

    plant(patch, Follower, "_is_awaited", is_awaited)


def tells_durable_end(patch: pytest.MonkeyPatch) -> None:
    """20: it reports what is durable, not what it has appended."""
    plant(patch, Follower, "_reported_durable_end", lambda self: self._log_end)


def caps_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """20: its high watermark is never above its own log's end."""
    plant(patch, Follower, "_capped_high_watermark", lambda self: self._leader_high_watermark)


def recovers_from_out_of_range(patch: pytest.MonkeyPatch) -> None:
    """21: an offset out of the leader's range is never fatal."""
    on_error = Follower._on_error

    def stop(self: Follower, error: int) -> list[FollowerEffect]:
        if error != OffsetOutOfRange.code:
            return on_error(self, error)
        self._is_busy = True
        return []

    plant(patch, Follower, "_on_error", stop)


def keeps_last_epoch(patch: pytest.MonkeyPatch) -> None:
    """22: an empty reply does not make it forget its last epoch."""
    on_fetched = Follower.on_fetched

    def forget(self: Follower, asked: FetchFrom, reply: Fetched) -> list[FollowerEffect]:
        is_empty = reply.error == 0 and reply.diverging is None and not reply.has_records
        if self._is_awaited(asked) and is_empty:
            self._last_epoch = NO_LEADER_EPOCH
        return on_fetched(self, asked, reply)

    plant(patch, Follower, "on_fetched", forget)


RULES: tuple[Plant, ...] = (
    counts_joiners,
    counts_leavers,
    holds_below_min_isr,
    keeps_high_watermark,
    fences_other_epochs,
    counts_agreeing_fetches_only,
    holds_while_some_are_eligible,
    refuses_below_min_isr,
    answers_when_committed,
    counts_own_durable_end,
    joins_at_high_watermark,
    joins_after_epoch_start,
    joins_as_registered,
    guards_isr_writes,
    keeps_both_when_unknown,
    deletes_before_it_leads,
    keeps_eligible_leaders,
    enters_epoch,
    leads_an_epoch_once,
    steps_down,
    truncates_by_epoch,
    takes_the_smaller_end,
    compares_in_every_epoch,
    trims_epochs_at_the_end,
    drops_replies_of_other_epochs,
    tells_durable_end,
    caps_high_watermark,
    recovers_from_out_of_range,
    keeps_last_epoch,
)
