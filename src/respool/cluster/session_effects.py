"""Effects of a broker's session: what its caller does for it, and reports back (`session.py`)."""

from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

from respool.ports.metadata_store import Guard


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteRun:
    """Write the id of this process to the data folder, durably."""

    run: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantLease:
    ttl_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOwnKeys:
    """Read /brokers/<id> and /registry/<id>, after a delay."""

    after_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EndLastRun:
    """Revoke the lease of a dead process, and read the broker's keys again."""

    lease: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Resign:
    """Apply `own_replicas.resign_everywhere` until it has no writes left."""

    was_clean: bool
    # The data folder of the last process, if this one uses another.
    left_folder: UUID | None = None
    # The data folder of this process.
    folder: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    key: str
    value: bytes
    guards: tuple[Guard, ...]
    # None: the key remains when the lease expires.
    lease: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopActing:
    """Stop leading, controlling and acknowledging; then register again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefuseToJoin:
    """The broker cannot join the cluster."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeLease:
    lease: int


Effect: TypeAlias = (
    NoteRun
    | GrantLease
    | ReadOwnKeys
    | EndLastRun
    | Resign
    | Put
    | StopActing
    | RefuseToJoin
    | RevokeLease
)
