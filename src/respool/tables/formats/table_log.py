"""The port that Delta and Iceberg implement: a table's versions, and the commit that adds files and moves positions.

A table stores its own positions: for each partition the next offset, set in the same commit that adds the rows below
it. `commit` is a compare-and-swap on the loaded state: it takes effect only if no other commit has moved
the same positions since. It is tried once; the caller decides what follows a refusal.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from respool.tables.formats.file_store import FileStore
from respool.tables.planning.data_file_names import FileName
from respool.tables.planning.expiring import KnownVersion

# Names of table properties.
TOPIC = "respool.topic"
TOPIC_ID = "respool.topic.id"
COMMIT = "respool.commit"
NOTE = "respool.note"
POSITION = "respool.position"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicIdentity:
    """The topic that a table belongs to. A topic that is created again has another id, and needs another table."""

    name: str
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """A complete Parquet file, not in the table until a commit names it."""

    name: FileName
    rows: int
    size: int
    # Microseconds since 1970, of `_timestamp`.
    timestamp_min: int
    timestamp_max: int
    offset_min: int
    offset_max: int

    @property
    def path(self) -> str:
        return self.name.path


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """A file of a version of the table."""

    path: str
    size: int
    rows: int
    # None: another program wrote the file.
    name: FileName | None
    # Microseconds since 1970; None if the table does not say.
    timestamp_max: int | None = None
    # The format's own description of the file.
    entry: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """A version of a table, as it was loaded."""

    version: int
    # The table's id: a table that replaces this one at its location has another.
    table_id: str
    topic: TopicIdentity
    schema: pa.Schema
    # Partition -> the next offset; without an entry, the table has nothing of the partition.
    positions: Mapping[int, int]
    handle: Any = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChange:
    """One commit."""

    token: str
    added: Sequence[WrittenFile] = ()
    removed: Sequence[TableFile] = ()
    positions: Mapping[int, int] = field(default_factory=dict)
    # Text for the table's history, such as gaps.
    note: str = ""

    @property
    def changes_rows(self) -> bool:
        """False if files are only joined: the rows do not change."""
        return not (self.added and self.removed)


class TableLog(Protocol):
    """A table of one topic, in one format. Not thread-safe."""

    @property
    def files(self) -> FileStore: ...

    @property
    def kind(self) -> str: ...

    def create(self, schema: pa.Schema, topic: TopicIdentity, *, by_day: bool) -> None:
        """
        Raises:
            TableExists: there is one already.
        """

    def load(self, version: int | None = None) -> TableState:
        """Load a version, by default the newest.

        Raises:
            NoTable: there is no table, or no such version.
            TableAltered: its log is damaged, or a setting would lose positions.
        """

    def commit(self, state: TableState, change: TableChange) -> TableState:
        """Return the table as the commit left it. `state` must not be used again.

        Raises:
            TableConflict: another commit came first; this one is not in the table.
            CommitUnknown: it may be in the table.
        """

    def has_token(self, token: str, *, since: TableState) -> bool:
        """True if a commit with this token is in the newest version, and was not when `since` was loaded."""

    def add_columns(self, state: TableState, fields: Sequence[pa.Field]) -> None:
        """
        Raises:
            TableConflict
        """

    def write_schema(self, state: TableState) -> pa.Schema:
        """The schema of the Parquet files for this state, with what the format needs in it."""

    def table_files(self, state: TableState) -> list[TableFile]:
        """The files of this version."""

    def versions(self, state: TableState) -> list[KnownVersion]:
        """The versions that can be loaded, from old to new."""

    def forget(self, state: TableState, versions: Sequence[int]) -> None:
        """Forget versions: their files may then be deleted by `unreferenced`.

        Raises:
            TableConflict
        """

    def delete_unreferenced(self, state: TableState, *, older_than_ms: int, now_ms: int) -> int:
        """Delete files that no version names and that are older than this; return how many."""
