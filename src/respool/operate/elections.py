"""Leader elections on request: preferred leaders, or unclean leaders for offline partitions."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from respool.cluster import keys
from respool.cluster.election import is_unclean
from respool.cluster.guarded_write import GuardedWrite
from respool.cluster.partition_requests import ElectionKind, elect_leaders
from respool.cluster.status_document import Awaited, waits_for
from respool.cluster.view import ClusterView
from respool.model.errors import RequestError
from respool.model.ids import BrokerId, TopicPartition
from respool.model.operator_errors import NotFound
from respool.model.quantities import partition_numbers
from respool.operate.cluster_store import ClusterStore


class PlannedElection(NamedTuple):
    """A partition's leader before and after."""

    leader: BrokerId | None
    elected: BrokerId
    # The new leader may lack acknowledged records.
    may_lose: bool
    # What the offline partition is waiting for, until an unclean election ends the wait.
    waited_for: Awaited | None


class Elections(NamedTuple):
    elected: dict[TopicPartition, PlannedElection]
    refused: dict[TopicPartition, RequestError]


class ElectionScope(NamedTuple):
    """The partitions to elect leaders for; without topics: all that need an election."""

    # None instead of numbers: all partitions of the topic.
    topics: Mapping[str, Sequence[int] | None]
    unclean: bool

    @property
    def kind(self) -> ElectionKind:
        return ElectionKind.UNCLEAN if self.unclean else ElectionKind.PREFERRED


async def plan_elections(cluster: ClusterStore, scope: ElectionScope) -> Elections:
    """
    Raises:
        NotFound: a topic does not exist, or has no such partition.
    """
    snapshot = await cluster.read()
    snapshot.check_exists()
    return plan(snapshot.view, scope)


async def carry_out(
    cluster: ClusterStore, kind: ElectionKind, planned: Mapping[TopicPartition, PlannedElection]
) -> set[TopicPartition]:
    """Elect the planned leaders; return the partitions where that succeeded.

    Partitions are skipped if another leader would be elected by now: a better replica may have come back.
    """
    done: set[TopicPartition] = set()

    def decide(view: ClusterView) -> list[GuardedWrite]:
        # Called again after a conflict; some of the writes may have succeeded by then.
        done.update(of for of, one in planned.items() if _leader_of(view, of) == one.elected)
        left = {of: one for of, one in planned.items() if of not in done}
        found = _plan(view, kind, list(left)).elected
        same = [of for of, one in left.items() if found.get(of) == one]
        writes = elect_leaders(view, kind, same).writes
        written.clear()
        written.update(same)
        return writes

    written: set[TopicPartition] = set()
    await cluster.change(decide)
    return done | written


def _leader_of(view: ClusterView, of: TopicPartition) -> BrokerId | None:
    found = view.partition(of)
    return None if found is None else found[1].leader


def plan(view: ClusterView, scope: ElectionScope) -> Elections:
    """
    Raises:
        NotFound: a topic does not exist, or has no such partition.
    """
    partitions = _partitions(view, scope.topics) if scope.topics else None
    return _plan(view, scope.kind, partitions)


def _plan(
    view: ClusterView, kind: ElectionKind, partitions: Sequence[TopicPartition] | None
) -> Elections:
    outcome = elect_leaders(view, kind, partitions)
    elected: dict[TopicPartition, PlannedElection] = {}
    names = {topic.id: topic.name for topic in view.topics.values()}
    for write in outcome.writes:
        for key, value in write.puts.items():
            topic_id, number = keys.parse_partition_key(key)
            of = TopicPartition(names[topic_id], number)
            leader = keys.decode_partition(value).leader
            found = view.partition(of)
            assert found is not None
            assert leader is not None
            topic, before = found
            may_lose = is_unclean(leader, before, topic.rules, view)
            elected[of] = PlannedElection(
                leader=before.leader,
                elected=leader,
                may_lose=may_lose,
                waited_for=waits_for(view, before) if may_lose else None,
            )
    return Elections(elected, dict(outcome.refused))


def _partitions(
    view: ClusterView, wanted: Mapping[str, Sequence[int] | None]
) -> list[TopicPartition]:
    partitions: list[TopicPartition] = []
    for name, numbers in wanted.items():
        topic = view.topics.get(name)
        if topic is None:
            raise NotFound(f"there is no topic {name!r}")
        count = len(topic.partitions)
        for number in range(count) if numbers is None else numbers:
            if number >= count:
                raise NotFound(
                    f"there is no partition {number} of {name!r}",
                    hint=partition_numbers(count),
                )
            partitions.append(TopicPartition(name, number))
    return partitions
