"""Copies the committed offsets of consumer groups, so that their consumers can continue at the target.

Offsets are the same on both sides, so they are copied unchanged, with three restrictions:

- Not beyond the end of the copy: a group that is ahead of the mirror gets the copy's end, and reads some records again.
- Never backwards: the offsets of a group that has continued at the target are not changed.
- Not while the group has members at the target: then it commits its own offsets.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.groups import (
    GroupList,
    OffsetAndMetadata,
    commit_offsets,
    fetch_offsets,
    list_groups,
)
from respool.client.kafka.metadata import Place
from respool.mirror.clusters import as_operator_errors
from respool.model.operator_errors import OperatorError

# States of a group without members.
INACTIVE_STATES = {"Empty", "Dead"}


@dataclass(slots=True)
class GroupCopyResult:
    # The source's groups whose offsets should be copied.
    wanted: set[str] = field(default_factory=set)
    # Group -> how many offsets were committed at the target in this pass.
    committed: dict[str, int] = field(default_factory=dict)
    # Groups with members at the target.
    active: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)
    # Brokers of either cluster that did not list their groups; such groups of the source are not copied in this pass.
    unlisted: list[str] = field(default_factory=list)

    @property
    def failures(self) -> str:
        """All failures that will be retried; empty if there are none."""
        return "; ".join([*self.unlisted, *(f"{name}: {why}" for name, why in self.failed.items())])


class GroupOffsetCopier:
    """Blocking. A `copy` in another thread ends early if one of the clusters is interrupted."""

    def __init__(
        self, source: Cluster, target: Cluster, wanted: tuple[re.Pattern[str], ...]
    ) -> None:
        self._source = source
        self._target = target
        self._wanted = wanted

    def copy(self, ends: Mapping[Place, int]) -> GroupCopyResult:
        """One pass over all groups. `ends` are the log ends of the partitions' copies.

        Raises:
            Unreachable: a cluster does not answer.
        """
        result = GroupCopyResult()
        with as_operator_errors():
            at_target, at_source = list_groups(self._target), list_groups(self._source)
        result.unlisted += _unlisted("the source", at_source) + _unlisted("the target", at_target)
        states = {info.name: info.state for info in at_target.groups}
        for info in at_source.groups:
            if not any(one.fullmatch(info.name) for one in self._wanted):
                continue
            result.wanted.add(info.name)
            if states.get(info.name, "Empty") not in INACTIVE_STATES:
                result.active.add(info.name)
                continue
            try:
                with as_operator_errors():
                    if due := self._due(info.name, ends):
                        commit_offsets(self._target, info.name, due)
                        result.committed[info.name] = len(due)
            except OperatorError as error:
                result.failed[info.name] = error.message
        return result

    def _due(self, group: str, ends: Mapping[Place, int]) -> dict[Place, OffsetAndMetadata]:
        at_source = fetch_offsets(self._source, group)
        if not due_commits(at_source, {}, ends):
            return {}
        # Fetched even if the target did not list the group: its coordinator may not have answered.
        return due_commits(at_source, fetch_offsets(self._target, group), ends)


def due_commits(
    at_source: Mapping[Place, OffsetAndMetadata],
    at_target: Mapping[Place, OffsetAndMetadata],
    ends: Mapping[Place, int],
) -> dict[Place, OffsetAndMetadata]:
    """The offsets to commit at the target, given a group's committed offsets on both sides."""
    due = {}
    for place, committed in at_source.items():
        if place not in ends:
            continue
        offset = min(committed.offset, ends[place])
        if place not in at_target or at_target[place].offset < offset:
            due[place] = OffsetAndMetadata(offset=offset, metadata=committed.metadata)
    return due


def _unlisted(side: str, found: GroupList) -> list[str]:
    unlisted = [
        f"{side}'s broker {number} did not list its groups ({why})"
        for number, why in found.unheard.items()
    ]
    if found.unled:
        unlisted.append(f"some groups of {side} are moving to another broker")
    return unlisted
