"""Leader elections and reassignments of many partitions in one request, through any broker.

Each partition has its own result. If other brokers change the cluster in the meantime, the remaining partitions are
decided again; results already granted stay.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from respool.broker.metadata.catalog import Catalog
from respool.cluster import keys
from respool.cluster.guarded_write import GuardedWrite
from respool.cluster.partition_draft import GrantedWrites
from respool.cluster.partition_requests import ElectionKind, elect_leaders, reassign
from respool.cluster.view import ClusterView
from respool.model.errors import RequestError, RequestTimedOut
from respool.model.ids import BrokerId, TopicPartition
from respool.ports.metadata_store import GuardFailed, StoreUnavailable

TRIES_MAX = 10

# The error for each partition; None: granted.
Answers: TypeAlias = dict[TopicPartition, RequestError | None]


class PartitionChanges:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def elect(
        self, kind: ElectionKind, partitions: Sequence[TopicPartition] | None
    ) -> Answers:
        """Elect leaders for these partitions. For all partitions (None), only those with something to do get a result.

        Raises:
            RequestTimedOut: the request is for all partitions, and the store does not answer.
        """
        return await self._retry_on_conflict(
            partitions, lambda view, rest: elect_leaders(view, kind, rest)
        )

    async def reassign(
        self,
        targets: Mapping[TopicPartition, Sequence[BrokerId] | None],
        *,
        may_change_factor: bool,
    ) -> Answers:
        """Begin reassignments to the given replicas; None cancels a partition's reassignment."""

        def decide(view: ClusterView, rest: Sequence[TopicPartition] | None) -> GrantedWrites:
            assert rest is not None
            wanted = {of: targets[of] for of in rest}
            return reassign(view, wanted, may_change_factor=may_change_factor)

        return await self._retry_on_conflict(list(targets), decide)

    async def _retry_on_conflict(
        self,
        asked: Sequence[TopicPartition] | None,
        decide: Callable[[ClusterView, Sequence[TopicPartition] | None], GrantedWrites],
    ) -> Answers:
        answers: Answers = {}
        try:
            for _ in range(TRIES_MAX):
                # Partitions that were granted would now be reported as needing no change.
                rest = None if asked is None else [of for of in asked if of not in answers]
                view = await self._catalog.sure_view()
                outcome = decide(view, rest)
                if rest is None or not _writes_all(outcome, rest, view):
                    # This view may be outdated. A guarded write would notice that; but refusals and "nothing to do"
                    # need no write, so they must be decided on the store's current content.
                    view = await self._catalog.read_view()
                    outcome = decide(view, rest)
                if await self._write(outcome.writes, view, answers):
                    granted: Answers = dict.fromkeys(rest or ())
                    return granted | dict(outcome.refused) | answers
                await self._catalog.read_view()
            error = RequestTimedOut(f"others have changed the cluster {TRIES_MAX} times meanwhile")
        except StoreUnavailable as unavailable:
            error = RequestTimedOut(f"the metadata store does not answer: {unavailable}")
        if asked is None:
            raise error
        return dict.fromkeys(asked, error) | answers

    async def _write(
        self, writes: Sequence[GuardedWrite], view: ClusterView, answers: Answers
    ) -> bool:
        """Write one after the other and record what each write grants. Return False if another broker was faster."""
        try:
            for write in writes:
                await self._catalog.write(write)
                answers.update(dict.fromkeys(_partitions_of(write, view)))
        except GuardFailed:
            return False
        return True


def _writes_all(outcome: GrantedWrites, asked: Sequence[TopicPartition], view: ClusterView) -> bool:
    written = {of for write in outcome.writes for of in _partitions_of(write, view)}
    return written.issuperset(asked)


def _partitions_of(write: GuardedWrite, view: ClusterView) -> Iterator[TopicPartition]:
    names = {topic.id: topic.name for topic in view.topics.values()}
    for key in write.puts:
        topic_id, number = keys.parse_partition_key(key)
        yield TopicPartition(names[topic_id], number)
