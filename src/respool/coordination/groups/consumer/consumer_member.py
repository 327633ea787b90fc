"""A member of a next-generation consumer group, and its reconciliation with the target assignment (KIP-848).

A member's assignment contains only partitions that it may use at once. A partition that moves is first removed from
its old owner's assignment; the old owner revokes it, and confirms by omitting it from its owned partitions; only then
is it added to the new owner's assignment. Meanwhile a member is in one of three states:

```
                      must revoke partitions
          STABLE  ------------------------------>  UNREVOKED
        ^   |  ^                                      |  |
        |   |  '---- revoked, nothing to wait for ----'  | revoked,
  all   |   | waits for                                  | waits for others
  free  |   v others                                     |
        '- UNRELEASED  <---------------------------------'
```

A member keeps its epoch while it must revoke partitions, and takes the target's epoch once it has done so.
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

# Special values in the field of the member epoch.
JOIN_EPOCH = 0
LEAVE_EPOCH = -1
# A static member leaves temporarily; its partitions are kept for it until its session times out.
LEAVE_STATIC_EPOCH = -2


class MemberState(IntEnum):
    """The state of a member, as written in records."""

    STABLE = 0
    UNREVOKED = 1
    UNRELEASED = 2
    # Any state written by a newer release.
    UNKNOWN = 127


class ClassicDetails(NamedTuple):
    """The fields of a classic member's JoinGroup."""

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
    # Subscription by pattern, in addition to names. None instead of empty.
    topic_pattern: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    # None for a member of the next-generation protocol.
    classic: ClassicDetails | None = None

    epoch: int = JOIN_EPOCH
    # If the reply with the new epoch is lost, the member sends this one again.
    previous_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    # The partitions that the member may use.
    assigned: PartitionSet = field(default_factory=dict)
    # Partitions that the member may still use and must revoke. No other member gets them before that.
    revoking: PartitionSet = field(default_factory=dict)

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The target assignment of a member."""

    epoch: int
    partitions: PartitionSet
    # The subset of given partitions that another member still owns.
    held_by_others: Callable[[PartitionSet], PartitionSet]


def reconcile(
    member: ConsumerMember, target: Target, *, owned: PartitionSet | None
) -> ConsumerMember:
    """Reconcile the member by one step with its target; return the same object if nothing changes.

    `owned` are the partitions that it reports as owned; None: not reported.

    Raises:
        FencedMemberEpoch: a newer release left the member in an unknown state; it must rejoin.
    """
    if member.is_reconciled_to(target.epoch):
        return member
    kept = intersection(member.assigned, target.partitions)
    to_revoke = difference(member.assigned, kept)
    if member.state is MemberState.UNREVOKED and _owns(owned, member.revoking):
        # The member has not revoked everything. It may have to revoke more, but gets no partitions.
        return replace(member, assigned=kept, revoking=union(member.revoking, to_revoke))
    if member.state is MemberState.UNKNOWN and owned != NO_PARTITIONS:
        raise FencedMemberEpoch(
            f"the state of member {member.member_id!r} is not known to this release; it must join again"
        )
    if to_revoke and _owns(owned, to_revoke):
        return replace(member, state=MemberState.UNREVOKED, assigned=kept, revoking=to_revoke)
    missing = difference(target.partitions, kept)
    unreleased = target.held_by_others(missing)
    return replace(
        member,
        epoch=target.epoch,
        # While the epoch stays the same, the reply with it may still be lost.
        previous_epoch=member.previous_epoch if member.epoch == target.epoch else member.epoch,
        state=MemberState.UNRELEASED if unreleased else MemberState.STABLE,
        assigned=union(kept, difference(missing, unreleased)),
        revoking=NO_PARTITIONS,
    )


def _owns(owned: PartitionSet | None, partitions: PartitionSet) -> bool:
    """A member that does not report its owned partitions is assumed to still own them."""
    return owned is None or overlap(partitions, owned)
