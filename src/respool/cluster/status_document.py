"""The state of the cluster, for `respool cluster status` and for alarms."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from respool.cluster.election import has_left_its_folder
from respool.cluster.reassignment import is_moving
from respool.cluster.view import ClusterView
from respool.model.cluster import PartitionImage, RegistryEntry
from respool.model.ids import BrokerId, TopicPartition

# What a broker with a failed log must have before it can lead again.
WITH_ITS_LOG = "restarted with its log in order"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStatus:
    rack: str | None
    is_live: bool
    is_stopping: bool
    is_drained: bool
    is_removed: bool
    # When the broker went missing; None if it runs.
    missing_since_ms: int | None
    replicas: int
    leads: int
    # The broker's replicas that are out of sync.
    behind: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    brokers: Mapping[BrokerId, BrokerStatus]
    partition_count: int
    # No leader: none is elected, or the leader is down or has a failed log, and no other has taken over yet.
    leaderless: tuple[TopicPartition, ...]
    # Too few in-sync replicas for acks=all.
    under_min_isr: tuple[TopicPartition, ...]
    # Some replicas are out of sync.
    under_replicated: tuple[TopicPartition, ...]
    moving: tuple[TopicPartition, ...]

    @property
    def is_well(self) -> bool:
        return not self.leaderless and not self.under_min_isr and not self.under_replicated


def status(view: ClusterView) -> ClusterStatus:
    replicas: Counter[BrokerId] = Counter()
    leads: Counter[BrokerId] = Counter()
    in_sync: Counter[BrokerId] = Counter()
    images = {
        TopicPartition(topic.name, number): (topic, image)
        for topic, number, image in view.partitions()
    }
    for _, image in images.values():
        replicas.update(image.replicas)
        in_sync.update(image.isr)
        leader = leader_now(view, image)
        if leader is not None:
            leads[leader] += 1
    return ClusterStatus(
        brokers={
            one: _broker(view, one, replicas=replicas[one], leads=leads[one], synced=in_sync[one])
            for one in sorted({*view.brokers, *view.registry})
        },
        partition_count=len(images),
        leaderless=tuple(
            of for of, (_, image) in images.items() if leader_now(view, image) is None
        ),
        under_min_isr=tuple(
            of
            for of, (topic, image) in images.items()
            # Brokers may have another default of min.insync.replicas than the caller; an ELR exists only below the
            # minimum.
            if len(image.isr) < image.min_isr(topic.rules.min_isr) or image.elr
        ),
        under_replicated=tuple(
            of
            for of, (_, image) in images.items()
            if not {*image.target}.difference(image.adding) <= {*image.isr}
        ),
        moving=tuple(of for of, (_, image) in images.items() if is_moving(image)),
    )


def leader_now(view: ClusterView, image: PartitionImage) -> BrokerId | None:
    """The leader, if it is live and its log has not failed.

    The store may name a leader that is down, until the controller notices, or for ever if there is no controller.
    """
    leader = image.serving_leader
    return leader if leader is not None and view.is_live(leader) else None


class Need(StrEnum):
    """The condition in which a broker must return to lead an offline partition."""

    NOTHING = "nothing"
    SOUND_LOG = "sound_log"
    OLD_DATA_FOLDER = "old_data_folder"


@dataclass(frozen=True, slots=True, kw_only=True)
class Awaited:
    """What an offline partition needs to get a leader."""

    # Any one of these brokers; empty: only an election helps.
    brokers: tuple[BrokerId, ...] = ()
    need: Need = Need.NOTHING
    or_unclean_election: bool = False

    def __str__(self) -> str:
        words = f"broker {' or '.join(map(str, self.brokers))}" if self.brokers else ""
        if self.need is Need.SOUND_LOG:
            words += f" {WITH_ITS_LOG}"
        elif self.need is Need.OLD_DATA_FOLDER:
            words += " with its old data folder"
        if self.or_unclean_election:
            words += ", or an unclean election" if words else "an unclean election"
        return words


def waits_for(view: ClusterView, image: PartitionImage) -> Awaited | None:
    """What an offline partition waits for; None if it has a leader, or will have one soon."""
    if leader_now(view, image) is not None:
        return None
    complete = sorted({*image.isr, *image.elr})
    sound = [one for one in complete if one not in image.offline]
    if sound:
        # A crashed broker leaves the ISR and ELR when it returns; then the partition waits for the others.
        absent = not any(view.is_live(one) for one in sound)
        return Awaited(brokers=tuple(sound)) if absent else None
    if complete:
        return Awaited(brokers=tuple(complete), need=Need.SOUND_LOG, or_unclean_election=True)
    return None if image.last_leader is None else _waits_for_last(image.last_leader, image, view)


def _waits_for_last(last: BrokerId, image: PartitionImage, view: ClusterView) -> Awaited:
    if has_left_its_folder(last, image, view):
        return Awaited(brokers=(last,), need=Need.OLD_DATA_FOLDER, or_unclean_election=True)
    if last in image.offline:
        return Awaited(brokers=(last,), need=Need.SOUND_LOG, or_unclean_election=True)
    return Awaited(or_unclean_election=True) if view.is_live(last) else Awaited(brokers=(last,))


def _broker(
    view: ClusterView, broker: BrokerId, *, replicas: int, leads: int, synced: int
) -> BrokerStatus:
    entry = view.registry.get(broker, RegistryEntry())
    endpoint = view.brokers.get(broker)
    return BrokerStatus(
        rack=view.rack_of(broker),
        is_live=endpoint is not None,
        is_stopping=endpoint is not None and endpoint.is_draining,
        is_drained=entry.is_drained,
        is_removed=entry.is_removed,
        missing_since_ms=view.missing_since_ms.get(broker),
        replicas=replicas,
        leads=leads,
        behind=replicas - synced,
    )
