"""A decision as one transaction of the metadata store, guarded by the revisions on which it was based."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from respool.ports.metadata_store import Guard

# Guards, puts and deletes of one write together. etcd's limit is 128 of each kind; with fewer, a conflict on one key
# delays fewer other changes.
OPERATIONS_MAX = 100
REASONS_TOLD_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedWrite:
    guards: tuple[Guard, ...]
    puts: Mapping[str, bytes] = field(default_factory=dict)
    deletes: tuple[str, ...] = ()
    # A sentence for the log.
    why: str

    def __post_init__(self) -> None:
        operations = len(self.guards) + len(self.puts) + len(self.deletes)
        assert operations <= OPERATIONS_MAX, f"{operations} operations, limit {OPERATIONS_MAX}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyChange:
    """The part of a write that concerns one key."""

    key: str
    # None: the key is deleted.
    value: bytes | None
    # The revision of the key when the decision was made; 0: no such key; None: unguarded.
    revision: int | None
    why: str


def in_writes(
    changes: Iterable[KeyChange],
    *,
    guard: Guard,
    why: str = "",
    operations_max: int = OPERATIONS_MAX,
) -> list[GuardedWrite]:
    """Pack independent changes into as few writes as possible, each with this guard."""
    writes: list[GuardedWrite] = []
    packed: list[KeyChange] = []
    size = 1
    for change in changes:
        operations = 1 if change.revision is None else 2
        if size + operations > operations_max:
            writes.append(_write(packed, guard, why))
            packed, size = [], 1
        packed.append(change)
        size += operations
    if packed:
        writes.append(_write(packed, guard, why))
    return writes


def _write(changes: list[KeyChange], guard: Guard, why: str) -> GuardedWrite:
    return GuardedWrite(
        guards=(
            guard,
            *(
                Guard(key=one.key, revision=one.revision)
                for one in changes
                if one.revision is not None
            ),
        ),
        puts={one.key: one.value for one in changes if one.value is not None},
        deletes=tuple(one.key for one in changes if one.value is None),
        why=why or _sentence([one.why for one in changes]),
    )


def _sentence(reasons: list[str]) -> str:
    told = "; ".join(reasons[:REASONS_TOLD_MAX])
    more = len(reasons) - REASONS_TOLD_MAX
    return f"{told}; and {more} more" if more > 0 else told
