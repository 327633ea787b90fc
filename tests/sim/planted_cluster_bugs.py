"""Mistakes that clusters have made, to be made again on purpose. See `planted_bugs.py` for those of a broker alone.

These spoil what joins brokers together. Those of replication are in `tests/replication/planted_bugs.py`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from respool.broker.fetch import readers
from respool.broker.membership.cluster_member import ClusterMember
from respool.broker.partitions.partition import Partition
from respool.broker.partitions.registry import Partitions
from respool.broker.replication.isr_writer import IsrWriter
from respool.broker.replication.roles import Roles
from respool.cluster import election
from respool.cluster.session import Session
from respool.model.cluster import PartitionImage
from respool.model.ids import BrokerId, Offset
from respool.replication.effects import LeaderEffect, ProposeIsr
from respool.replication.follower import Follower
from respool.replication.leader import Leader
from sim.planted_bugs import Plant


def sent_is_taken_for_received(patch: pytest.MonkeyPatch) -> None:
    """A follower that asks has, in the leader's eyes, what it is about to be sent."""
    heard = Leader.on_follower_fetch

    def on_follower_fetch(self: Leader, broker: BrokerId, **said: Any) -> list[LeaderEffect]:
        return heard(self, broker, **{**said, "durable_end": self._log_end})

    patch.setattr(Leader, "on_follower_fetch", on_follower_fetch)


def isr_is_changed_without_the_store(patch: pytest.MonkeyPatch) -> None:
    """A leader counts on the ISR it would like, whatever becomes of its write."""

    async def write(
        _self: IsrWriter, partition: Partition, leader: Leader, proposal: ProposeIsr
    ) -> None:
        if partition.leader is leader:
            partition.role.on_image(leader.me, proposal.image)

    patch.setattr(IsrWriter, "_write", write)


def anyone_is_elected(patch: pytest.MonkeyPatch) -> None:
    """Rather one that has lost records than none."""

    def best(image: PartitionImage, _rules: object, view: Any, **_more: object) -> BrokerId | None:
        return election._best(image.replicas, image, view)

    patch.setattr(election, "_best_of_the_rest", best)


def every_stop_was_clean(patch: pytest.MonkeyPatch) -> None:
    """A broker that comes back after a crash is believed to have all it had."""
    patch.setattr(Session, "_was_clean", lambda self: True)


def leases_never_run_out(patch: pytest.MonkeyPatch) -> None:
    """A broker that cannot reach the store goes on as if nobody could have taken its place."""
    patch.setattr(ClusterMember, "may_act", lambda self: self.epoch is not None)


def followers_are_read_to_their_end(patch: pytest.MonkeyPatch) -> None:
    """A follower takes all that it has for committed."""
    caught = Follower.on_appended

    def on_appended(self: Follower, log_end: Offset, **more: Any) -> Sequence[object]:
        effects = caught(self, log_end, **more)
        self.high_watermark = log_end
        return effects

    patch.setattr(Follower, "on_appended", on_appended)


def eligible_replicas_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Nobody remembers who left an ISR that is too small: then the last one standing is the only one."""
    with_isr = PartitionImage.with_isr

    def forget(self: PartitionImage, isr: Any, **more: Any) -> PartitionImage:
        return replace(with_isr(self, isr, **more), elr=())

    patch.setattr(PartitionImage, "with_isr", forget)


def any_data_folder_will_do(patch: pytest.MonkeyPatch) -> None:
    """A broker whose disk is not mounted is believed to have what it led with."""
    patch.setattr(Session, "_left_folder", lambda self: None)


def topics_are_known_by_name(patch: pytest.MonkeyPatch) -> None:
    """What is led of a deleted topic is served for the one that was made anew under its name."""

    def find(self: Partitions, topic: str, partition: int) -> Partition:
        return self._partitions.get((topic, partition)) or unspoilt(self, topic, partition)

    unspoilt = Partitions.find
    patch.setattr(Partitions, "find", find)
    patch.setattr(Roles, "_is_recreated", lambda self, partition: False)
    patch.setattr(readers, "_of_topic", lambda target, partition: partition)


CLUSTER_PLANTS: tuple[Plant, ...] = (
    sent_is_taken_for_received,
    isr_is_changed_without_the_store,
    anyone_is_elected,
    every_stop_was_clean,
    leases_never_run_out,
    followers_are_read_to_their_end,
    eligible_replicas_are_forgotten,
    any_data_folder_will_do,
    topics_are_known_by_name,
)
