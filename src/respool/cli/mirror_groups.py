"""Copies how far groups have read, so that their consumers can move over to the mirror and go on.

Offsets are the same on both sides, so they are copied as they are, with three cares:

- Not beyond what the copy has: a group that is ahead of the mirror gets the copy's end, and reads a little again.
- Never backwards: a group that has read on at the target is not moved back to where it once was at the source.
- Not while the group has members at the target: then its offsets are its own.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from respool.cli.errors import CliError
from respool.cli.kafka import Cluster
from respool.cli.kafka_groups import Committed, Groups
from respool.cli.mirror_link import Place

UNUSED_STATES = {"Empty", "Dead"}


@dataclass(slots=True)
class GroupCopies:
    # Groups and how many of their offsets were set now.
    moved: dict[str, int] = field(default_factory=dict)
    # Groups at work at the target.
    busy: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)


class GroupCare:
    """Blocks: it stands on the client library's admin."""

    def __init__(
        self, source: Cluster, target: Cluster, wanted: tuple[re.Pattern[str], ...]
    ) -> None:
        self._source = Groups(source)
        self._target = Groups(target)
        self._wanted = wanted

    def copy(self, ends: Mapping[Place, int]) -> GroupCopies:
        """`ends` are where the copies of partitions end."""
        done = GroupCopies()
        states = {info.name: info.state for info in self._target.list()}
        for info in self._source.list():
            if not any(one.fullmatch(info.name) for one in self._wanted):
                continue
            if states.get(info.name, "Empty") not in UNUSED_STATES:
                done.busy.add(info.name)
                continue
            try:
                moves = self._moves(info.name, ends, is_known=info.name in states)
                if moves:
                    self._target.commit(info.name, moves)
                    done.moved[info.name] = len(moves)
            except CliError as error:
                done.failed[info.name] = error.message
        return done

    def _moves(
        self, group: str, ends: Mapping[Place, int], *, is_known: bool
    ) -> dict[Place, Committed]:
        read = self._source.committed(group)
        held = self._target.committed(group) if is_known else {}
        return due_moves(read, held, ends)


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
