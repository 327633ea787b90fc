"""A forced reset: members out, offsets set, by the requests every Kafka broker knows.

Members commit how far they are, so new offsets under a live group are refused, and would be overwritten. A member
that is no longer in the group is told so at its next heartbeat: it joins again and starts from the committed offsets.

```
  ours       LeaveGroup(all members)  OffsetCommit(as nobody)  OffsetFetch        in one write
  broker     the group is Empty       ... so this is allowed   and this shows it
  members    Heartbeat: UNKNOWN_MEMBER_ID -> JoinGroup -> OffsetFetch: the new place
```
What a removed member still commits is refused, so it cannot undo the reset. Somebody may join between our look at
the group and our requests; then the commit is refused, and we look again, until the deadline.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from respool.cli.broker_socket import BrokerSocket, Question
from respool.client.kafka.groups import Committed, offset_fields
from respool.client.kafka.metadata import Place
from respool.model.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    GroupIdNotFound,
    IllegalGeneration,
    NotCoordinator,
    RebalanceInProgress,
    StaleMemberEpoch,
    UnknownMemberId,
)
from respool.model.operator_errors import OperatorError

OFFSET_COMMIT, OFFSET_FETCH, LEAVE_GROUP, DESCRIBE_GROUPS = 8, 9, 13, 15
CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_DESCRIBE = 68, 69
# A member with this epoch leaves (KIP-848).
LEAVE_EPOCH = -1

PAUSE_SECONDS = 0.1
# The group was not empty, or its coordinator moved: look again.
_TRY_AGAIN = {
    error.code
    for error in (
        UnknownMemberId,
        IllegalGeneration,
        RebalanceInProgress,
        StaleMemberEpoch,
        NotCoordinator,
        CoordinatorNotAvailable,
        CoordinatorLoadInProgress,
    )
}
# In these states the members wait for each other. Thrown out, they would be back at once, so we let them get ready.
_UNSETTLED = {"PreparingRebalance", "CompletingRebalance"}


class Present(NamedTuple):
    """Somebody who is in the group now."""

    member_id: str
    instance_id: str | None


class Seen(NamedTuple):
    """The group as it was a moment ago."""

    state: str
    members: tuple[Present, ...]


class NotFenced(OperatorError):
    """The group did not stay empty long enough to set its offsets, or the broker refused them."""


class GroupFence:
    """Sets the offsets of a group that has members."""

    def __init__(
        self,
        group: str,
        *,
        coordinator: tuple[str, int],
        is_classic: bool,
        reason: str,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._group = group
        self._coordinator = coordinator
        self._is_classic = is_classic
        self._reason = reason
        self._clock = clock
        self._pause = pause

    def set_offsets(self, places: Mapping[Place, Committed], *, seconds: float) -> int:
        """Throw the members out and set the offsets; return how many were thrown out.

        Raises:
            NotFenced: it did not work within the time; members may have been thrown out, the offsets are the old ones.
            BrokerUnreachable: the coordinator does not answer.
        """
        deadline = self._clock() + seconds
        with BrokerSocket(*self._coordinator) as broker:
            while True:
                seen = self._look(broker)
                # Near the end we do not wait for order any longer.
                patience = self._clock() < deadline - seconds / 2
                code = 0
                if seen.state not in _UNSETTLED or not patience:
                    code = self._try(broker, seen, places)
                    if code == 0:
                        return len(seen.members)
                if self._clock() >= deadline:
                    raise NotFenced(
                        f"the members of {self._group} came back each time before its offsets were set "
                        f"(tried for {seconds:.0f} seconds, last error code {code})",
                        hint="stop its consumers, then reset it without --force",
                    )
                self._pause(PAUSE_SECONDS)

    def _look(self, broker: BrokerSocket) -> Seen:
        if self._is_classic:
            fields = {"groups": [self._group], "include_authorized_operations": False}
            (reply,) = broker.ask(Question(DESCRIBE_GROUPS, 5, fields))
        else:
            fields = {"group_ids": [self._group], "include_authorized_operations": False}
            (reply,) = broker.ask(Question(CONSUMER_GROUP_DESCRIBE, 0, fields))
        (group,) = reply.groups
        if group.error_code == GroupIdNotFound.code and not self._is_classic:
            # Its last member of the next-generation protocol is gone, and it went back to the classic one.
            self._is_classic = True
            return self._look(broker)
        if group.error_code:
            raise NotFenced(
                f"{self._group} cannot be described: error code {int(group.error_code)}"
            )
        return Seen(group.group_state, tuple(map(self._present, group.members)))

    def _present(self, member: Any) -> Present:
        return Present(
            member.member_id, member.group_instance_id if self._is_classic else member.instance_id
        )

    def _try(self, broker: BrokerSocket, seen: Seen, places: Mapping[Place, Committed]) -> int:
        """All requests in one write. Returns 0, or the error code after which to look again."""
        leaving = self._leave_questions(seen)
        replies = broker.ask(*leaving, self._commit_question(places), self._fetch_question(places))
        committed, fetched = replies[-2:]
        codes = {
            int(partition.error_code)
            for topic in committed.topics
            for partition in topic.partitions
            if partition.error_code
        }
        if codes <= _TRY_AGAIN:
            return max(codes) if codes else self._verify(fetched, places)
        refused = min(codes - _TRY_AGAIN)
        raise NotFenced(
            f"the broker refused the new offsets of {self._group} with error code {refused}"
        )

    def _verify(self, fetched: Any, places: Mapping[Place, Committed]) -> int:
        """What the group has committed now. Asked in the same breath, so no member can have moved it yet."""
        (group,) = fetched.groups
        have = {
            (topic.name, partition.partition_index): partition.committed_offset
            for topic in group.topics
            for partition in topic.partitions
        }
        wrong = [place for place, wanted in places.items() if have.get(place) != wanted.offset]
        if wrong:
            topic, number = wrong[0]
            raise NotFenced(
                f"{topic}/{number} was set to {places[wrong[0]].offset}, "
                f"but the group has {have.get(wrong[0])} there"
            )
        return 0

    def _leave_questions(self, seen: Seen) -> list[Question]:
        if not seen.members:
            return []
        if self._is_classic:
            members = [
                {
                    "member_id": each.member_id,
                    "group_instance_id": each.instance_id,
                    "reason": self._reason,
                }
                for each in seen.members
            ]
            return [Question(LEAVE_GROUP, 5, {"group_id": self._group, "members": members})]
        return [
            Question(
                CONSUMER_GROUP_HEARTBEAT,
                0,
                {
                    "group_id": self._group,
                    "member_id": each.member_id,
                    "member_epoch": LEAVE_EPOCH,
                    "instance_id": each.instance_id,
                    "rebalance_timeout": -1,
                    "subscribed_topic_names": None,
                    "server_assignor": None,
                    "topic_partitions": None,
                },
            )
            for each in seen.members
        ]

    def _commit_question(self, places: Mapping[Place, Committed]) -> Question:
        fields = {
            "group_id": self._group,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": offset_fields(places),
        }
        return Question(OFFSET_COMMIT, 9, fields)

    def _fetch_question(self, places: Mapping[Place, Committed]) -> Question:
        group = {
            "group_id": self._group,
            "topics": [
                {"name": topic, "partition_indexes": numbers}
                for topic, numbers in _by_topic(places)
            ],
        }
        return Question(OFFSET_FETCH, 8, {"groups": [group], "require_stable": False})


def _by_topic(places: Mapping[Place, Committed]) -> Sequence[tuple[str, list[int]]]:
    grouped: dict[str, list[int]] = {}
    for topic, number in sorted(places):
        grouped.setdefault(topic, []).append(number)
    return list(grouped.items())
