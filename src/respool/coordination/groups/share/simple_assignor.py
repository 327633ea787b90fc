"""The assignor `simple` of share groups: every partition gets the same number of members, and as few moves as possible.

Several members may have one partition. With `m` members of `p` partitions, each partition gets `ceil(m / p)` members,
and a member at most its equal part of these places; every partition and every member gets at least one. Members with
the same subscription share all its partitions; members with different ones are assigned topic by topic.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import NamedTuple

from respool.coordination.groups.consumer.partition_sets import PartitionSet, partition_set
from respool.model.ids import TopicId

_Place = tuple[TopicId, int]


class ShareSubscriber(NamedTuple):
    """The assignor's input for one member."""

    topic_ids: frozenset[TopicId]
    # Its last target assignment. May contain partitions that it cannot have any more.
    assigned: PartitionSet


def assign_simple(
    members: Mapping[str, ShareSubscriber], partitions: PartitionSet
) -> dict[str, PartitionSet]:
    """Assign these partitions, as far as members subscribe to their topics."""
    held: dict[str, list[_Place]] = {member_id: [] for member_id in members}
    if len({member.topic_ids for member in members.values()}) <= 1:
        topics: Iterable[Iterable[TopicId]] = [list(partitions)]
    else:
        topics = [[topic_id] for topic_id in sorted(partitions)]
    for together in topics:
        subscribers = [
            member_id
            for member_id in sorted(members)
            if any(topic_id in members[member_id].topic_ids for topic_id in together)
        ]
        places = [
            (topic_id, number)
            for topic_id in sorted(together)
            if any(topic_id in members[member_id].topic_ids for member_id in subscribers)
            for number in sorted(partitions[topic_id])
        ]
        if subscribers and places:
            _assign(subscribers, places, members, held)
    return {
        member_id: partition_set((topic_id, [number]) for topic_id, number in mine)
        for member_id, mine in held.items()
    }


def _assign(
    subscribers: Sequence[str],
    places: Sequence[_Place],
    members: Mapping[str, ShareSubscriber],
    held: dict[str, list[_Place]],
) -> None:
    per_partition = ceil(len(subscribers) / len(places))
    per_member = ceil(len(places) * per_partition / len(subscribers))
    counts = dict.fromkeys(places, 0)
    mine = {
        member_id: _kept(members[member_id], counts, per_partition, per_member)
        for member_id in subscribers
    }
    load = {member_id: len(kept) for member_id, kept in mine.items()}

    def give(member_id: str, place: _Place) -> None:
        mine[member_id].add(place)
        load[member_id] += 1
        counts[place] += 1

    # Members without a partition first, each to the partition with the fewest members.
    for member_id in subscribers:
        if not mine[member_id]:
            give(member_id, min(places, key=counts.__getitem__))
    by_load = sorted(subscribers, key=load.__getitem__)
    for place in sorted(places, key=counts.__getitem__):
        while counts[place] < per_partition:
            taker = next(
                (one for one in by_load if load[one] < per_member and place not in mine[one]), None
            )
            if taker is None and counts[place] == 0:
                taker = by_load[0]
            if taker is None:
                break
            give(taker, place)
            # Nearly sorted, so this is cheap.
            by_load.sort(key=load.__getitem__)
    for member_id, kept in mine.items():
        held[member_id].extend(sorted(kept))


def _kept(
    member: ShareSubscriber, counts: dict[_Place, int], per_partition: int, per_member: int
) -> set[_Place]:
    kept: set[_Place] = set()
    for topic_id, numbers in sorted(member.assigned.items()):
        for number in sorted(numbers):
            place = (topic_id, number)
            if len(kept) < per_member and counts.get(place, per_partition) < per_partition:
                kept.add(place)
                counts[place] += 1
    return kept
