"""A member of a next-generation consumer group, and the steps that bring what it has to what it shall have (KIP-848).

A member is told only what it may use at once. A partition that shall move is first taken out of its old owner's
assignment; the old owner gives it up and says so by not naming it among the partitions it owns; only then is it put
into the new owner's. Between these steps the member is in one of three states:

```
                      must give something up
          STABLE  ------------------------------>  UNREVOKED
        ^   |  ^                                      |  |
        |   |  '---- gave it up, nothing to wait for -'  | gave it up,
all came|   | waits for                                  | waits for others
  free  |   v others                                     |
        '- UNRELEASED  <---------------------------------'
```

A member keeps its epoch while it must give something up, and has the target's epoch as soon as it has done so.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple

from respool.coordination.groups.consumer.partition_sets import (
    NO_PARTITIONS,
    PartitionSet,
    difference,
    intersection,
    overlap,
    union,
)
from respool.coordination.groups.group_requests import Protocol
from respool.model.coordinator_errors import FencedMemberEpoch

# What a member says in place of its epoch.
JOIN_EPOCH = 0
LEAVE_EPOCH = -1
# A static member is away for a while; its partitions are kept for it until its session ends.
LEAVE_STATIC_EPOCH = -2


class MemberState(IntEnum):
    """As written in records."""

    STABLE = 0
    UNREVOKED = 1
    UNRELEASED = 2
    # Written by a newer release.
    UNKNOWN = 127


class ClassicDetails(NamedTuple):
    """What a member of the classic protocol told when it joined (JoinGroup)."""

    session_timeout_ms: int
    protocols: tuple[Protocol, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    # Topics by pattern, beside those by name. Never empty: that is None.
    topic_pattern: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    # None for a member of the next-generation protocol.
    classic: ClassicDetails | None = None

    epoch: int = JOIN_EPOCH
    # The reply that told the member its epoch may be lost; then it comes once more with the one before.
    previous_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    # What it may use.
    assigned: PartitionSet = field(default_factory=dict)
    # What it may still be using and must give up. Nobody else may have it until then.
    revoking: PartitionSet = field(default_factory=dict)

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a member shall have."""

    epoch: int
    partitions: PartitionSet
    # Which of these partitions another member still has.
    held_by_others: Callable[[PartitionSet], PartitionSet]


def reconcile(
    member: ConsumerMember, target: Target, *, owned: PartitionSet | None
) -> ConsumerMember:
    """Bring the member one step nearer to its target, or return it as it is.

    `owned` is what it says it has, or None if it does not say.

    Raises:
        FencedMemberEpoch: a newer release left the member in a state not known here; it must start anew.
    """
    if member.is_reconciled_to(target.epoch):
        return member
    kept = intersection(member.assigned, target.partitions)
    to_revoke = difference(member.assigned, kept)
    if member.state is MemberState.UNREVOKED and _owns(owned, member.revoking):
        # It has not given up yet what it must. It may have to give up still more, but can get nothing.
        return replace(member, assigned=kept, revoking=union(member.revoking, to_revoke))
    if member.state is MemberState.UNKNOWN and owned != NO_PARTITIONS:
        raise FencedMemberEpoch(
            f"the state of member {member.member_id!r} is not known to this release; it must join anew"
        )
    if to_revoke and _owns(owned, to_revoke):
        return replace(member, state=MemberState.UNREVOKED, assigned=kept, revoking=to_revoke)
    missing = difference(target.partitions, kept)
    unreleased = target.held_by_others(missing)
    return replace(
        member,
        epoch=target.epoch,
        # While the epoch stays, the reply that told it may still be lost.
        previous_epoch=member.previous_epoch if member.epoch == target.epoch else member.epoch,
        state=MemberState.UNRELEASED if unreleased else MemberState.STABLE,
        assigned=union(kept, difference(missing, unreleased)),
        revoking=NO_PARTITIONS,
    )


def _owns(owned: PartitionSet | None, partitions: PartitionSet) -> bool:
    """A member that does not say is taken to have them still."""
    return owned is None or overlap(partitions, owned)
