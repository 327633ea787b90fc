"""Creates, enlarges and deletes topics, in writes small enough for the store.

A topic with many partitions does not fit into one write, so the topic's own key decides: its partitions are written
before that key and deleted after it. Partitions that belong to no topic are ignored; those left over from an
interrupted attempt are collected (`strays.py`), possibly by another broker while the attempt is still in progress. So
the last of several writes is `sealed`:

1. the first write of an attempt creates its first partition, at a revision that cannot be known in advance;
2. the collector deletes an attempt's first partition first;
3. the last write requires that partition to be unchanged since the first write, and writes it again.

Either the topic is created and none of its partitions can be collected, or one was collected and the creation fails.

Each write requires the topic's key to be unchanged: of two concurrent enlargements, the second must not overwrite
partitions that exist by then and have records.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from respool.cluster import keys
from respool.cluster.guarded_write import OPERATIONS_MAX, GuardedWrite, KeyChange, in_writes
from respool.cluster.keys import TopicRecord
from respool.cluster.layout_requests import relaid
from respool.cluster.placement import check_replicas, place
from respool.cluster.view import ClusterView
from respool.model.cluster import PartitionImage, TopicImage
from respool.model.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from respool.model.ids import BrokerId, LeaderEpoch, TopicId, check_topic_name
from respool.model.layouts.partition_layout import PartitionLayout
from respool.ports.metadata_store import Guard


def create_topic(
    view: ClusterView,
    name: str,
    *,
    topic_id: TopicId,
    overrides: Mapping[str, str],
    partition_count: int = 0,
    replication_factor: int = 0,
    assignment: Mapping[int, Sequence[BrokerId]] | None = None,
    held: Counter[BrokerId] | None = None,
) -> list[GuardedWrite]:
    """The writes that create a topic, in this order; it exists once the last one has succeeded.

    The last of several must be `sealed`. Without `assignment`, replicas are placed by `placement.py`. `held` is
    `replica_counts` of the view and of topics decided since; this one's replicas are added.

    Raises:
        RequestError: the name, a number or the assignment is invalid, or the topic exists.
    """
    revision = check_name_is_free(view, name)
    if held is None:
        held = replica_counts(view)
    if assignment:
        replicas = _assigned(assignment, view, first=0)
    else:
        replicas = place(
            view.candidates(),
            partition_count=partition_count,
            replication_factor=replication_factor,
            start=topic_id.int,
            held=held,
        )
    for brokers in replicas:
        held.update(brokers)
    record = TopicRecord(id=topic_id, overrides=overrides, partition_count=len(replicas))
    return _written(view, name, record, replicas, first=0, revision=revision)


def check_name_is_free(view: ClusterView, name: str) -> int:
    """Return the revision of the name's key: 0, or that of a view whose parent was deleted, which is overwritten.

    Raises:
        InvalidTopic, TopicAlreadyExists: nothing can be created with this name.
    """
    check_topic_name(name)
    if name in view.topics:
        raise TopicAlreadyExists(f"there is a topic {name!r} already")
    if name in view.image.views:
        raise TopicAlreadyExists(
            f"there is a view {name!r} already, of topic {view.image.log_name(name)!r}"
        )
    dormant = view.image.dormant_views.get(name)
    if dormant is None:
        return 0
    if not dormant.is_orphan:
        raise TopicAlreadyExists(f"there is a view {name!r} already, made by a newer version")
    return dormant.revision


def grow_topic(
    view: ClusterView,
    name: str,
    *,
    partition_count: int,
    assignment: Mapping[int, Sequence[BrokerId]] | None = None,
) -> list[GuardedWrite]:
    """The writes that add partitions to a topic; like a new topic, they exist once the last one has succeeded."""
    topic = _topic(view, name)
    have = len(topic.partitions)
    if partition_count <= max(have, topic.active_count):
        raise InvalidPartitions(
            f"{name!r} has {topic.active_count} partitions; the new number must be larger, not {partition_count}"
        )
    layout = None if topic.layout is None else relaid(topic, partition_count)
    if layout is not None:
        if assignment:
            raise InvalidReplicaAssignment(
                f"{name!r} was shrunk: the replicas of its partitions follow from those of partitions 0 to "
                f"{layout.family - 1}"
            )
        replicas = [
            topic.partitions[layout.root(number)].replicas
            for number in range(have, partition_count)
        ]
    elif assignment:
        replicas = _assigned(assignment, view, first=have)
        if len(replicas) != partition_count - have:
            raise InvalidReplicaAssignment(
                f"replicas are named for {len(replicas)} partitions, {partition_count - have} are to be added"
            )
    else:
        of_topic = [image.target for image in topic.partitions]
        replicas = place(
            view.candidates(),
            partition_count=partition_count - have,
            replication_factor=len(of_topic[0]),
            start=topic.id.int + have,
            held=replica_counts(view),
            of_topic=of_topic,
        )
    record = TopicRecord(
        id=topic.id,
        overrides=topic.overrides,
        partition_count=partition_count,
        layout=layout,
    )
    return _written(view, name, record, replicas, first=have, revision=topic.revision)


def configure_topic(
    view: ClusterView, name: str, *, overrides: Mapping[str, str]
) -> list[GuardedWrite]:
    """The write that replaces the topic's own configuration."""
    topic = _topic(view, name)
    record = TopicRecord(
        id=topic.id,
        overrides=overrides,
        partition_count=len(topic.partitions),
        layout=topic.layout,
    )
    return in_writes(
        [_topic_change(name, record, revision=topic.revision)],
        guard=view.guard,
        why=f"topic {name!r} has other settings",
    )


def sealed(writes: Sequence[GuardedWrite], *, first_revision: int) -> GuardedWrite:
    """Seal the last of several writes that create partitions, with the revision of the first one."""
    assert len(writes) > 1
    marker, value = next(iter(writes[0].puts.items()))
    last = writes[-1]
    return replace(
        last,
        guards=(*last.guards, Guard(key=marker, revision=first_revision)),
        puts={**last.puts, marker: value},
    )


def delete_topic(view: ClusterView, name: str) -> list[GuardedWrite]:
    """The writes that delete a topic and its views, in this order; it is deleted once the first one has succeeded."""
    topic = _topic(view, name)
    changes = [
        KeyChange(key=keys.topic_key(name), value=None, revision=topic.revision, why=name),
        *(
            KeyChange(key=keys.topic_key(one.name), value=None, revision=one.revision, why=name)
            for one in view.image.views_of(topic.id)
        ),
        *(
            KeyChange(key=keys.partition_key(topic.id, number), value=None, revision=None, why=name)
            for number in range(len(topic.partitions))
        ),
    ]
    return in_writes(changes, guard=view.guard, why=f"topic {name!r} is deleted")


def _written(
    view: ClusterView,
    name: str,
    record: TopicRecord,
    replicas: Sequence[tuple[BrokerId, ...]],
    *,
    first: int,
    revision: int,
) -> list[GuardedWrite]:
    partitions = [
        KeyChange(
            key=keys.partition_key(record.id, number),
            value=keys.encode_partition(
                _new_partition(brokers, view, record.layout, view.topics.get(name), number)
            ),
            # Overwrites what an interrupted attempt left there.
            revision=None,
            why=name,
        )
        for number, brokers in enumerate(replicas, start=first)
    ]
    topic = _topic_change(name, record, revision=revision)
    why = f"topic {name!r} gets partitions {first} to {first + len(replicas) - 1}"
    writes = in_writes([*partitions, topic], guard=view.guard, why=why)
    if len(writes) == 1:
        return writes
    is_unchanged = Guard(key=topic.key, revision=revision)
    parts = in_writes(partitions, guard=view.guard, why=why, operations_max=OPERATIONS_MAX - 1)
    # The last partition in a write of its own, so that there is room for its seal.
    return [
        *(replace(one, guards=(*one.guards, is_unchanged)) for one in parts),
        *in_writes([topic], guard=view.guard, why=why),
    ]


def _topic_change(name: str, record: TopicRecord, *, revision: int) -> KeyChange:
    return KeyChange(
        key=keys.topic_key(name), value=keys.encode_topic(record), revision=revision, why=name
    )


def _new_partition(
    replicas: tuple[BrokerId, ...],
    view: ClusterView,
    layout: PartitionLayout | None,
    topic: TopicImage | None,
    number: int,
) -> PartitionImage:
    """A new, empty partition: all live replicas are in sync. In a topic with a layout, its family's leader leads it."""
    running = tuple(one for one in replicas if view.can_lead(one))
    if not running:
        raise InvalidReplicaAssignment(f"none of the brokers {list(replicas)} runs")
    leader, epoch = running[0], LeaderEpoch(0)
    if layout is not None and topic is not None:
        epoch = layout.first_epoch
        if (leading := topic.partitions[layout.root(number)].leader) in running:
            assert leading is not None
            leader = leading
    return PartitionImage(replicas=replicas, isr=running, leader=leader, leader_epoch=epoch)


def _assigned(
    assignment: Mapping[int, Sequence[BrokerId]], view: ClusterView, *, first: int
) -> list[tuple[BrokerId, ...]]:
    if sorted(assignment) != list(range(first, first + len(assignment))):
        raise InvalidReplicaAssignment(
            f"partitions {sorted(assignment)} are not {first}, {first + 1}, … without gaps"
        )
    replicas = [tuple(assignment[number]) for number in sorted(assignment)]
    for brokers in replicas:
        check_replicas(brokers, view)
        if len(brokers) != len(replicas[0]):
            raise InvalidReplicaAssignment(
                f"partitions have {len(replicas[0])} and {len(brokers)} replicas: all must have as many"
            )
    return replicas


def replica_counts(view: ClusterView) -> Counter[BrokerId]:
    """The number of replicas that each broker has."""
    held: Counter[BrokerId] = Counter()
    for topic in view.topics.values():
        for image in topic.partitions:
            held.update(image.target)
    return held


def _topic(view: ClusterView, name: str) -> TopicImage:
    topic = view.topics.get(name)
    if topic is None:
        view.image.check_is_no_view(name, instead="change")
        raise UnknownTopicOrPartition(f"there is no topic {name!r}")
    return topic
