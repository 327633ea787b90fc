"""Copies how far groups have read, so that their consumers can move over to the mirror and go on.

Offsets are the same on both sides, so they are copied as they are, with three cares:

- Not beyond what the copy has: a group that is ahead of the mirror gets the copy's end, and reads a little again.
- Never backwards: a group that has read on at the target is not moved back to where it once was at the source.
- Not while the group has members at the target: then its offsets are its own.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from respool.cli.kafka import Cluster
from respool.cli.kafka_groups import Groups
from respool.client.kafka.groups import Committed
from respool.mirror.cluster_link import Place
from respool.model.operator_errors import OperatorError

UNUSED_STATES = {"Empty", "Dead"}


@dataclass(slots=True)
class GroupCopies:
    # The source's groups whose offsets are to be copied.
    wanted: set[str] = field(default_factory=set)
    # Groups and how many of their offsets were set now.
    moved: dict[str, int] = field(default_factory=dict)
    # Groups at work at the target.
    busy: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)
    # Brokers of either side that did not say which groups they have; those of the source are not copied now.
    unheard: list[str] = field(default_factory=list)

    @property
    def troubles(self) -> str:
        """All that is to be tried again, in words; empty when all is well."""
        return "; ".join([*self.unheard, *(f"{name}: {why}" for name, why in self.failed.items())])


class GroupCare:
    """It blocks."""

    def __init__(
        self, source: Cluster, target: Cluster, wanted: tuple[re.Pattern[str], ...]
    ) -> None:
        self._source = Groups(source)
        self._target = Groups(target)
        self._wanted = wanted

    def copy(self, ends: Mapping[Place, int]) -> GroupCopies:
        """`ends` are where the copies of partitions end."""
        done = GroupCopies()
        here, there = self._target.list(), self._source.list()
        done.unheard += [f"the source's {why}" for why in there.unheard]
        done.unheard += [f"the target's {why}" for why in here.unheard]
        states = {info.name: info.state for info in here.groups}
        for info in there.groups:
            if not any(one.fullmatch(info.name) for one in self._wanted):
                continue
            done.wanted.add(info.name)
            if states.get(info.name, "Empty") not in UNUSED_STATES:
                done.busy.add(info.name)
                continue
            try:
                if moves := self._moves(info.name, ends):
                    self._target.commit(info.name, moves)
                    done.moved[info.name] = len(moves)
            except OperatorError as error:
                done.failed[info.name] = error.message
        return done

    def close(self) -> None:
        """Wake the thread that copies, if it waits for a broker."""
        self._source.close()
        self._target.close()

    def _moves(self, group: str, ends: Mapping[Place, int]) -> dict[Place, Committed]:
        read = self._source.committed(group)
        if not due_moves(read, {}, ends):
            return {}
        # Asked for whether it was listed or not: the broker that has it may just not have said so.
        return due_moves(read, self._target.committed(group), ends)


def due_moves(
    read: Mapping[Place, Committed], held: Mapping[Place, Committed], ends: Mapping[Place, int]
) -> dict[Place, Committed]:
    """What to commit at the target for a group that has `read` so far at the source, and `held` at the target."""
    moves = {}
    for place, committed in read.items():
        if place not in ends:
            continue
        offset = min(committed.offset, ends[place])
        if place not in held or held[place].offset < offset:
            moves[place] = Committed(offset=offset, metadata=committed.metadata)
    return moves
