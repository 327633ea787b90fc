"""The state of a cluster as one document: brokers, leaders, unhealthy partitions and reassignments."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from respool.cluster.broker_requests import broker_load
from respool.cluster.partition_requests import reassignments
from respool.cluster.status_document import BrokerStatus, leader_now, status, waits_for
from respool.model.addresses import format_address
from respool.model.cluster import PartitionImage, RegistryEntry
from respool.model.ids import BrokerId, TopicPartition
from respool.operate.cluster_store import ClusterSnapshot, ClusterStore
from respool.operate.move_progress import MoveProgress, read_copy_progress
from respool.operate.throttle import throttle_documents, throttles

Document = dict[str, Any]


async def read_status(cluster: ClusterStore) -> Document:
    """
    Raises:
        NotFound: no broker has ever registered under this cluster name.
    """
    snapshot = await cluster.read()
    snapshot.check_exists()
    return describe(snapshot, await read_copy_progress(snapshot.view, cluster.address))


def describe(snapshot: ClusterSnapshot, copied: Mapping[TopicPartition, MoveProgress]) -> Document:
    """Return the document that `respool cluster status --json` prints."""
    view, found = snapshot.view, status(snapshot.view)
    return {
        "cluster": snapshot.cluster,
        "controller": snapshot.controller,
        "is_well": found.is_well,
        "topic_count": len(view.topics),
        "partition_count": found.partition_count,
        "brokers": [
            {
                "broker": one,
                "address": _address(snapshot, one),
                "rack": broker.rack,
                "state": state_of(broker, view.registry.get(one, RegistryEntry())),
                "membership": membership_of(broker),
                "leads": broker.leads,
                "replica_count": broker.replicas,
                "behind": broker.behind,
                "coming": broker_load(view, one).coming,
            }
            for one, broker in found.brokers.items()
        ],
        "offline": _partitions(snapshot, found.leaderless),
        "under_min_isr": _partitions(snapshot, found.under_min_isr),
        "under_replicated": _partitions(snapshot, found.under_replicated),
        "moving": [_move(of, image, copied.get(of)) for of, image in reassignments(view).items()],
        "throttles": throttle_documents(throttles(view)),
    }


def state_of(broker: BrokerStatus, entry: RegistryEntry) -> str:
    """The broker's state: up, stopping, stopped or missing."""
    if broker.is_live:
        return "stopping" if broker.is_stopping else "up"
    return "missing" if entry.clean_epoch is None else "stopped"


def membership_of(broker: BrokerStatus) -> str:
    """The broker's membership: member, draining, drained or removed."""
    if broker.is_removed:
        return "removed"
    if not broker.is_drained:
        return "member"
    return "draining" if broker.replicas else "drained"


def _address(snapshot: ClusterSnapshot, broker: BrokerId) -> str | None:
    """The broker's listener; its last address if it does not run."""
    endpoint = snapshot.view.brokers.get(broker)
    if endpoint is not None:
        return format_address(endpoint.host, endpoint.port)
    entry = snapshot.view.registry.get(broker, RegistryEntry())
    if entry.host is None or entry.port is None:
        return None
    return format_address(entry.host, entry.port)


def _partitions(snapshot: ClusterSnapshot, partitions: Sequence[TopicPartition]) -> list[Document]:
    shown = []
    for of in partitions:
        _, image = snapshot.view.partition(of) or (None, None)
        assert image is not None
        awaited = waits_for(snapshot.view, image)
        shown.append(
            {
                "topic": of.topic,
                "partition": of.partition,
                "leader": leader_now(snapshot.view, image),
                "replicas": list(image.target),
                "in_sync": list(image.isr),
                "eligible": list(image.elr),
                "waits_for": None if awaited is None else asdict(awaited),
            }
        )
    return shown


def _move(of: TopicPartition, image: PartitionImage, progress: MoveProgress | None) -> Document:
    return {
        "topic": of.topic,
        "partition": of.partition,
        "replicas": [one for one in image.replicas if one not in image.adding],
        "target_replicas": list(image.target),
        "adding": list(image.adding),
        "removing": list(image.removing),
        # The added replicas that are already in sync.
        "added": sum(one in image.isr for one in image.adding),
        "bytes_copied": None if progress is None else progress.copied_bytes,
        "bytes_total": None if progress is None else progress.total_bytes,
    }
