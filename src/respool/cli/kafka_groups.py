"""Consumer groups: who is in them, how far they have read, and setting that anew.

The half of `kafka.py` that is about groups; it speaks the small values below. Which there are and how far they have
read is asked by our own client, and set by it: `own_client.py` says why.
"""

import weakref
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from respool.cli.kafka import Cluster
from respool.cli.kafka_library import REQUEST_SECONDS, ConsumerGroupType
from respool.cli.own_client import own_cluster, own_errors_translated
from respool.client.kafka.groups import (
    Committed,
    ListedGroup,
    commit_offsets,
    fetch_offsets,
    list_groups,
)
from respool.client.kafka.metadata import Place
from respool.model.operator_errors import NotFound, OperatorError


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    member_id: str
    # A static member's own name (group.instance.id).
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[Place, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group(ListedGroup):
    # How partitions are shared out: range, cooperative-sticky, uniform, … Empty while nobody is in it.
    assignor: str
    members: tuple[Member, ...]
    # Where its coordinator listens.
    coordinator: tuple[str, int]

    @property
    def owners(self) -> dict[Place, Member]:
        return {place: member for member in self.members for place in member.partitions}


class NotAllHeard(OperatorError):
    """A broker did not say which groups it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    # By name.
    groups: list[ListedGroup]
    # Which brokers did not say theirs, and why, in words; or that some are with nobody now.
    unheard: list[str]

    @property
    def names(self) -> list[str]:
        return [info.name for info in self.groups]

    def check(self) -> None:
        """
        Raises:
            NotAllHeard: some groups may be missing.
        """
        if self.unheard:
            raise NotAllHeard(
                f"not all groups are known: {'; '.join(self.unheard)}",
                hint="run the same command again when all brokers answer",
            )


class Groups:
    """All groups of a cluster. `close` wakes whoever waits for an answer; else it ends with the last use of this."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._own = own_cluster(cluster.connection)
        self.close = weakref.finalize(self, self._own.close)

    def list(self) -> GroupListing:
        """
        Raises:
            BrokerUnreachable: no broker answers.
        """
        with own_errors_translated():
            found = list_groups(self._own)
        unheard = [
            f"broker {number} did not say which groups it has ({why})"
            for number, why in found.unheard.items()
        ]
        if found.unled:
            unheard.append("some groups are just going to another broker")
        return GroupListing(groups=found.groups, unheard=unheard)

    def find(self, name: str) -> Group | None:
        """The group, with its members; None when there is none of that name.

        Raises:
            NotAllHeard: it may be one of a broker that does not answer.
        """
        listing = self.list()
        if name not in listing.names:
            listing.check()
            return None
        return self.describe(name)

    def describe(self, name: str) -> Group:
        """One that was listed, with its members; without any if it has gone since."""
        found = self._ask_one(
            lambda admin: admin.describe_consumer_groups([name], request_timeout=REQUEST_SECONDS)
        )
        return Group(
            name=name,
            state=_state(found),
            type=_type(found),
            assignor=found.partition_assignor or "",
            members=tuple(map(_member, found.members)),
            coordinator=(str(found.coordinator.host), int(found.coordinator.port)),
        )

    def get(self, name: str) -> Group:
        """
        Raises:
            NotFound: there is no such group; the hint names one that is spelled alike.
            NotAllHeard: it may be one of a broker that does not answer.
        """
        group = self.find(name)
        if group is None:
            alike = get_close_matches(name, self.list().names, n=1)
            hint = f"did you mean {alike[0]}?" if alike else "see: respool group list"
            raise NotFound(f"there is no group {name!r} at {self._cluster.broker}", hint=hint)
        return group

    def committed(self, name: str) -> dict[Place, Committed]:
        """All places the group has committed, also while its coordinator moves.

        Raises:
            OperatorError: nobody says it.
        """
        with own_errors_translated():
            return fetch_offsets(self._own, name)

    def commit(self, name: str, places: Mapping[Place, Committed]) -> None:
        """Set a group's offsets from outside, which the broker allows while it has no members.

        Raises:
            OperatorError: it has members, or a partition is not there.
        """
        with own_errors_translated():
            commit_offsets(self._own, name, places)

    def delete(self, name: str) -> None:
        self._ask_one(
            lambda admin: admin.delete_consumer_groups([name], request_timeout=REQUEST_SECONDS)
        )

    def _ask_one(self, request: Any) -> Any:
        answers: dict[Any, Future[Any]] = self._cluster.ask(request)
        (answer,) = answers.values()
        return answer


def _state(found: Any) -> str:
    """PREPARING_REBALANCING -> PreparingRebalance, as the protocol and all other tools have it."""
    name = "".join(word.capitalize() for word in found.state.name.split("_"))
    return {
        "PreparingRebalancing": "PreparingRebalance",
        "CompletingRebalancing": "CompletingRebalance",
    }.get(name, name)


def _type(found: Any) -> str:
    return "consumer" if found.type == ConsumerGroupType.CONSUMER else "classic"


def _member(found: Any) -> Member:
    assigned = found.assignment.topic_partitions if found.assignment else []
    return Member(
        member_id=found.member_id,
        instance_id=found.group_instance_id or None,
        client_id=found.client_id,
        host=found.host.removeprefix("/"),
        partitions=tuple(sorted((each.topic, each.partition) for each in assigned)),
    )
