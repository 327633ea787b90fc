"""A decision as one transaction of the metadata store, guarded by the revisions on which it was based."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from respool.ports.metadata_store import Guard

# Guards, puts and deletes of one write together. etcd's limit is 128 of each kind; with fewer, a conflict on one key
# delays fewer other changes.
OPERATIONS_MAX = 100
# Total size of the values in a merged write: etcd takes requests of at most 1.5 MiB, and a topic's settings alone may
# have 1 MiB.
MERGED_BYTES_MAX = 256 * 1024
REASONS_TOLD_MAX = 3

Name = TypeVar("Name")


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedWrite:
    guards: tuple[Guard, ...]
    puts: Mapping[str, bytes] = field(default_factory=dict)
    deletes: tuple[str, ...] = ()
    # A sentence for the log.
    why: str
    # The limit of the store; None: it has none.
    operations_max: int | None = field(default=OPERATIONS_MAX, repr=False, compare=False)

    def __post_init__(self) -> None:
        limit = self.operations_max
        assert limit is None or self.operations <= limit, (
            f"{self.operations} operations, limit {limit}"
        )

    @property
    def operations(self) -> int:
        return len(self.guards) + len(self.puts) + len(self.deletes)

    @property
    def byte_count(self) -> int:
        return sum(map(len, self.puts.values()))


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


def merged(
    writes: Mapping[Name, GuardedWrite], *, operations_max: int | None
) -> list[tuple[list[Name], GuardedWrite]]:
    """Merge independent writes into as few as possible, each with the names of those that it contains.

    A store with a limit of operations has one of bytes, too.
    """
    found: list[tuple[list[Name], GuardedWrite]] = []
    names: list[Name] = []
    guards: set[Guard] = set()
    size = byte_count = 0
    for name, write in writes.items():
        changes = len(write.puts) + len(write.deletes)
        added = changes + len({*write.guards} - guards)
        is_full = operations_max is not None and (
            size + added > operations_max or byte_count + write.byte_count > MERGED_BYTES_MAX
        )
        if names and is_full:
            found.append((names, _union([writes[one] for one in names], operations_max)))
            names, guards, size, byte_count = [], set(), 0, 0
            added = write.operations
        names.append(name)
        guards.update(write.guards)
        size += added
        byte_count += write.byte_count
    if names:
        found.append((names, _union([writes[one] for one in names], operations_max)))
    return found


def _union(writes: list[GuardedWrite], operations_max: int | None) -> GuardedWrite:
    if len(writes) == 1:
        return writes[0]
    return GuardedWrite(
        guards=tuple(dict.fromkeys(guard for one in writes for guard in one.guards)),
        puts={key: value for one in writes for key, value in one.puts.items()},
        # A topic's deletion and its view's may both delete the view.
        deletes=tuple(dict.fromkeys(key for one in writes for key in one.deletes)),
        why=_sentence([one.why for one in writes]),
        operations_max=operations_max,
    )


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
