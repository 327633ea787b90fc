"""Consumer groups: list and describe them, with members and lag; set offsets; delete groups."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Self

from respool.client.kafka import groups as client_groups
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.groups import (
    GroupDescription,
    GroupList,
    GroupListing,
    MemberDescription,
    OffsetAndMetadata,
)
from respool.client.kafka.list_offsets import OffsetRange
from respool.client.kafka.metadata import Place
from respool.model.operator_errors import NotFound, OperatorError, UsageError
from respool.operate.errors import client_errors_translated


class GroupsUnknown(OperatorError):
    """A broker did not list its groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownGroups:
    # By name.
    groups: list[GroupListing]
    # Why the list may be incomplete: brokers that did not answer, or coordinators that are moving.
    gaps: list[str]

    @classmethod
    def of(cls, found: GroupList) -> Self:
        gaps = [
            f"broker {number} did not list its groups ({why})"
            for number, why in found.unheard.items()
        ]
        if found.unled:
            gaps.append("the coordinators of some groups are moving")
        return cls(groups=found.groups, gaps=gaps)

    @property
    def names(self) -> list[str]:
        return [info.name for info in self.groups]

    def check(self) -> None:
        """
        Raises:
            GroupsUnknown: some groups may be missing.
        """
        if self.gaps:
            raise GroupsUnknown(
                f"not all groups are known: {'; '.join(self.gaps)}",
                hint="run the same command again when all brokers answer",
            )


class GroupOperations:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def list(self) -> KnownGroups:
        """
        Raises:
            Unreachable: no broker answers.
        """
        with client_errors_translated():
            found = client_groups.list_groups(self._cluster)
        return KnownGroups.of(found)

    def find(self, name: str) -> GroupDescription | None:
        """The group with its members; None if there is no such group.

        Raises:
            GroupsUnknown: it may be on a broker that does not answer.
        """
        listing = self.list()
        if name not in listing.names:
            listing.check()
            return None
        return self.describe(name)

    def describe(self, name: str) -> GroupDescription:
        """A listed group with its members; without members if it has been deleted since."""
        with client_errors_translated():
            return client_groups.describe_group(self._cluster, name)

    def get(self, name: str) -> GroupDescription:
        """
        Raises:
            NotFound: there is no such group; the hint names a similarly spelled one.
            GroupsUnknown: it may be on a broker that does not answer.
        """
        group = self.find(name)
        if group is None:
            alike = get_close_matches(name, self.list().names, n=1)
            hint = f"did you mean {alike[0]}?" if alike else "see: respool group list"
            raise NotFound(f"there is no group {name!r} at {self._cluster.bootstrap}", hint=hint)
        return group

    def committed(self, name: str) -> dict[Place, OffsetAndMetadata]:
        """All committed offsets of the group."""
        with client_errors_translated():
            return client_groups.fetch_offsets(self._cluster, name)

    def commit(self, name: str, places: Mapping[Place, OffsetAndMetadata]) -> None:
        """Set committed offsets of a group without members.

        Raises:
            OperatorError: the group has members, or a partition does not exist.
        """
        with client_errors_translated():
            client_groups.commit_offsets(self._cluster, name, places)

    def delete(self, name: str) -> None:
        with client_errors_translated():
            client_groups.delete_group(self._cluster, name)


def state_named(name: str) -> str:
    """The state of groups that this names, in any case, as brokers spell it.

    Raises:
        UsageError: groups have no such state.
    """
    known = {state.lower(): state for state in client_groups.STATES}
    found = known.get(name.strip().lower())
    if found is None:
        raise UsageError(
            f"--state {name!r} is not a state of groups",
            hint=f"they are {', '.join(client_groups.STATES)}",
        )
    return found


# -- lag -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    topic: str
    partition: int
    # The next offset the group reads; None: no offset is committed.
    committed: int | None
    metadata: str = ""
    # The partition's offset range; None if it does not exist or has no leader.
    held: OffsetRange | None
    # The member to which it is assigned, as client id and host.
    owner: str | None = None

    @property
    def lag(self) -> int | None:
        """Messages left to read, not counting those that were deleted."""
        if self.committed is None or self.held is None:
            return None
        return max(0, self.held.end - max(self.committed, self.held.start))

    @property
    def lost(self) -> int:
        """Messages that were deleted before the group read them."""
        if self.committed is None or self.held is None:
            return 0
        return max(0, self.held.start - self.committed)


def owners_of(group: GroupDescription) -> dict[Place, MemberDescription]:
    """The group's members by assigned partition."""
    return {place: member for member in group.members for place in member.partitions}


def lags_of(
    group: GroupDescription,
    committed: Mapping[Place, OffsetAndMetadata],
    ranges: Mapping[Place, OffsetRange],
    *,
    places: Iterable[Place] = (),
) -> list[PartitionLag]:
    """The lag in each partition with a committed offset or an assigned member, and in each of `places`."""
    owners = owners_of(group)
    lags = []
    for topic, number in sorted({*committed, *owners, *places}):
        place = committed.get((topic, number))
        owner = owners.get((topic, number))
        lags.append(
            PartitionLag(
                topic=topic,
                partition=number,
                committed=place.offset if place else None,
                # confluent-kafka commits a zero byte after the metadata and hides it when it reads.
                metadata=place.metadata.rstrip("\0") if place else "",
                held=ranges.get((topic, number)),
                owner=f"{owner.client_id}@{owner.host}" if owner else None,
            )
        )
    return lags


def total_lag(lags: Iterable[PartitionLag]) -> int:
    return sum(each.lag or 0 for each in lags)


def format_places(places: Iterable[Place]) -> str:
    """Format as `rides 0,1,2  fares 0`."""
    by_topic: dict[str, list[str]] = {}
    for topic, number in sorted(places):
        by_topic.setdefault(topic, []).append(str(number))
    return "  ".join(f"{topic} {','.join(numbers)}" for topic, numbers in by_topic.items())
