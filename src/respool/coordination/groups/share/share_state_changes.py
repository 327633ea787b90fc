"""Changes of a share group's state at the share coordinator: initialized for members, altered and deleted by operators.

The share coordinator may be on another broker, so a change takes two decisions: one writes what is to be done and has
an effect, which the runtime carries out; the other one applies the result. A group has at most one effect under way:
a late initialization cannot follow a deletion. Requests that come meanwhile wait. After a failover the new coordinator
does again what the log says is to be done.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

from respool.coordination.decision import Ticket
from respool.coordination.draft import Draft
from respool.coordination.groups.consumer.partition_sets import (
    NO_PARTITIONS,
    PartitionSet,
    difference,
    intersection,
    is_within,
    partition_set,
    union,
)
from respool.coordination.groups.consumer.topics_view import TopicsView
from respool.coordination.groups.share.share_group import (
    ShareGroup,
    ShareGroupDraft,
    with_state,
    without_topics,
)
from respool.coordination.groups.share.share_group_requests import (
    AlterShareStarts,
    DeleteShareGroup,
    DeleteShareStates,
    InitializeShareStates,
    RemoveShareStates,
    ShareStart,
    ShareStateChange,
    ShareStatesChanged,
    ShareStatesInitialized,
    ShareStatesRemoved,
)
from respool.model.coordinator_errors import NonEmptyGroup
from respool.model.errors import RequestError
from respool.model.ids import Offset, TopicId

# The group's share.auto.offset.reset decides, when a leader first reads the state.
_UNDECIDED = Offset(-1)
# Partitions that a known topic gets later: the group reads all of their records.
_FROM_BEGINNING = Offset(0)


@dataclass(slots=True)
class _StateWork:
    """A group's effect under way, and the requests that wait for it or after it. In memory only."""

    is_under_way: bool = False
    # Answered by the result of the effect that is under way.
    current: tuple[Ticket, ShareStateChange] | None = None
    waiting: list[tuple[Ticket, ShareStateChange]] = field(default_factory=list)


class ShareStateChanges:
    def __init__(self) -> None:
        self._work: dict[str, _StateWork] = {}

    # --- what members need

    def need(self, change: ShareGroupDraft, topics: TopicsView) -> None:
        """Mark the subscribed partitions without state as to be initialized."""
        states = change.group.states
        missing = difference(change.group.subscribed(topics), with_state(states))
        if missing:
            change.put_states(initializing=union(states.initializing, missing), topics=topics)

    def drop_deleted_topics(self, change: ShareGroupDraft, topics: TopicsView) -> None:
        """Mark the state of topics that do not exist any more as to be deleted."""
        states = change.group.states
        existing = {topic.topic_id for topic in topics.values()}
        active = union(states.initializing, states.initialized)
        gone = without_topics(active, existing)
        if gone:
            change.put_states(
                initializing=without_topics(states.initializing, gone),
                initialized=without_topics(states.initialized, gone),
                deleting=union(states.deleting, gone),
                topics=topics,
            )

    def carry_on(self, group: ShareGroup, draft: Draft) -> None:
        """Have the next effect carried out, unless one is under way or nothing is to be done."""
        states = group.states
        if not states.deleting and not states.initializing:
            return
        work = self._work.setdefault(group.group_id, _StateWork())
        if work.is_under_way:
            return
        work.is_under_way = True
        if states.deleting:
            draft.carry_out(RemoveShareStates(group_id=group.group_id, partitions=states.deleting))
        else:
            draft.carry_out(
                InitializeShareStates(group_id=group.group_id, starts=_new_starts(group))
            )

    def is_under_way(self, group_id: str) -> bool:
        work = self._work.get(group_id)
        return work is not None and work.is_under_way

    # --- what operators ask for

    def ask(
        self,
        change: ShareGroupDraft,
        request: ShareStateChange,
        ticket: Ticket,
        draft: Draft,
        topics: TopicsView,
    ) -> None:
        """Begin a change, or let it wait for the effect that is under way. The caller flushes `change`.

        The answer comes with this decision, or with that of a result.
        """
        work = self._work.get(change.group.group_id)
        if work is not None and work.is_under_way:
            work.waiting.append((ticket, request))
            return
        if change.group.members:
            error = NonEmptyGroup(
                f"group {change.group.group_id} has {len(change.group.members)} members"
            )
            draft.answer(ticket, ShareStatesChanged(error=error))
            return
        if isinstance(request, AlterShareStarts):
            self._alter(change, request, draft, topics)
        elif isinstance(request, DeleteShareStates):
            self._delete(change, request.topic_ids, draft, topics)
        else:
            self._delete(change, with_state(change.group.states).keys(), draft, topics)
        work = self._work.get(change.group.group_id)
        if work is not None and work.is_under_way:
            work.current = (ticket, request)
            return
        if isinstance(request, DeleteShareGroup):
            change.end_group()
        draft.answer(ticket, ShareStatesChanged())

    def _alter(
        self,
        change: ShareGroupDraft,
        request: AlterShareStarts,
        draft: Draft,
        topics: TopicsView,
    ) -> None:
        change.begin_epoch(topics)
        group = change.group
        asked = partition_set((one.topic_id, [one.partition]) for one in request.starts)
        counts = {topic.topic_id: topic.partition_count for topic in topics.values()}
        # A request for one partition of a new topic leaves the others to share.auto.offset.reset.
        whole = {
            topic_id: numbers | frozenset(range(counts.get(topic_id, 0)))
            for topic_id, numbers in asked.items()
        }
        added = difference(whole, with_state(group.states))
        if added:
            change.put_states(initializing=union(group.states.initializing, added), topics=topics)
            group = change.group
        starts = tuple(one._replace(state_epoch=group.epoch) for one in request.starts)
        others = tuple(
            one for one in _new_starts(group) if one.partition not in asked.get(one.topic_id, ())
        )
        self._work.setdefault(group.group_id, _StateWork()).is_under_way = True
        draft.carry_out(InitializeShareStates(group_id=group.group_id, starts=starts + others))

    def _delete(
        self,
        change: ShareGroupDraft,
        topic_ids: Collection[TopicId],
        draft: Draft,
        topics: TopicsView,
    ) -> None:
        states = change.group.states
        had = {
            topic_id: numbers
            for topic_id, numbers in with_state(states).items()
            if topic_id in topic_ids
        }
        if not had:
            return
        change.put_states(
            initializing=without_topics(states.initializing, had),
            initialized=without_topics(states.initialized, had),
            deleting=union(states.deleting, had),
            topics=topics,
        )
        self.carry_on(change.group, draft)

    # --- results

    def initialized(
        self,
        change: ShareGroupDraft,
        result: ShareStatesInitialized,
        draft: Draft,
        topics: TopicsView,
    ) -> None:
        """Apply a result: a topic has state once all its partitions have."""
        states = change.group.states
        done = {
            topic_id: numbers
            for topic_id, numbers in states.initializing.items()
            if is_within({topic_id: numbers}, result.done)
        }
        if done:
            change.put_states(
                initializing=without_topics(states.initializing, done),
                initialized=union(states.initialized, done),
                topics=topics,
            )
        self._answer_current(result.group_id, result.done, result.error, draft)

    def removed(
        self, change: ShareGroupDraft, result: ShareStatesRemoved, draft: Draft, topics: TopicsView
    ) -> None:
        states = change.group.states
        done = intersection(states.deleting, result.done)
        if done:
            change.put_states(deleting=difference(states.deleting, done), topics=topics)
        current = self._work[result.group_id].current
        if current is not None and isinstance(current[1], DeleteShareGroup):
            self._end_group(change, result, current[0], draft)
        else:
            self._answer_current(result.group_id, result.done, result.error, draft)

    def _end_group(
        self, change: ShareGroupDraft, result: ShareStatesRemoved, ticket: Ticket, draft: Draft
    ) -> None:
        error = result.error
        if error is None and change.group.members:
            # It joined while the state was being deleted, and starts over.
            error = NonEmptyGroup(f"group {result.group_id} has a new member")
        if error is None and not with_state(change.group.states):
            change.end_group()
        draft.answer(ticket, ShareStatesChanged(error=error, changed=result.done))
        work = self._work[result.group_id]
        work.current, work.is_under_way = None, False

    def _answer_current(
        self, group_id: str, done: PartitionSet, error: RequestError | None, draft: Draft
    ) -> None:
        work = self._work[group_id]
        if work.current is not None:
            draft.answer(work.current[0], ShareStatesChanged(error=error, changed=done))
        work.current, work.is_under_way = None, False

    def take_waiting(self, group_id: str) -> list[tuple[Ticket, ShareStateChange]]:
        """The requests that waited for an effect to end; to be asked again, in this order."""
        work = self._work.get(group_id)
        if work is None or work.is_under_way:
            return []
        del self._work[group_id]
        return work.waiting


def _new_starts(group: ShareGroup) -> tuple[ShareStart, ...]:
    """Where partitions begin that have no state yet: a topic has either none or is known with some partitions."""
    known = group.states.initialized
    return tuple(
        ShareStart(topic_id, number, _FROM_BEGINNING if topic_id in known else _UNDECIDED)
        for topic_id, numbers in sorted(group.states.initializing.items())
        for number in sorted(numbers)
    )


def is_waiting_for(group: ShareGroup, wanted: PartitionSet) -> bool:
    """True if some of these partitions get their state soon."""
    to_come = union(group.states.initializing, group.states.deleting)
    return intersection(to_come, wanted) != NO_PARTITIONS
