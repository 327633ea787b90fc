"""The SQLite file of the metadata store: all SQL, and the settings that make commits durable.

```
entries (key, value, revision, lease)     current keys; lease is null for permanent ones
numbers (name, value)                     'revision': the store's; 'lease': the last one granted
```
Write-ahead log, synchronous=FULL: a commit is one append and one fsync before it is reported. The rollback journal
needs two or three, and in its usual mode the journal's deletion, which is the commit, is not synced. The locking mode
is exclusive: one process owns the file, and there is no shared-memory file.
"""

import os
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from respool.drivers.local_files import PRIVATE_FILE_MODE, failure, sync_folder
from respool.drivers.read_ahead import Descriptor
from respool.model.errors import DataFolderInUse, DataFolderMismatch, DiskFailed
from respool.ports.metadata_store import StoredValue

# "RSPL": identifies our file among SQLite databases.
APPLICATION_ID = 0x5253504C
LAYOUT_VERSION = 1

_TABLES = (
    "CREATE TABLE entries (key TEXT PRIMARY KEY, value BLOB NOT NULL, revision INTEGER NOT NULL, lease INTEGER)",
    "CREATE TABLE numbers (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
    "INSERT INTO numbers (name, value) VALUES ('revision', 0), ('lease', 0)",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {LAYOUT_VERSION}",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreContent:
    revision: int
    lease: int
    values: dict[str, StoredValue]


class SqliteFile:
    """Blocking calls, one at a time, from any thread.

    Raises:
        DataFolderInUse: another process has the file open.
        DataFolderMismatch: it is not a metadata store, or has an unknown layout.
        DiskFailed: it cannot be opened or is damaged.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        _make_file(path)
        self._connection = sqlite3.connect(
            path, timeout=0, isolation_level=None, check_same_thread=False
        )
        try:
            self._set_up()
        except sqlite3.Error as error:
            self._connection.close()
            if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
                raise DataFolderInUse(f"{path} is in use by another process") from error
            if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
                raise DataFolderMismatch(f"{path} is not a metadata store") from error
            raise DiskFailed(f"open {path}: {error}") from error
        except BaseException:
            self._connection.close()
            raise

    def load(self) -> StoreContent:
        """Return all content. Keys with a lease are deleted first: their owner was the previous process.

        That deletion is a transaction with its own revision.
        """
        read = self._connection.execute
        numbers = dict(read("SELECT name, value FROM numbers"))
        leased = [key for (key,) in read("SELECT key FROM entries WHERE lease IS NOT NULL")]
        if leased:
            numbers["revision"] += 1
            self.write(revision=numbers["revision"], deletes=leased)
        rows = read("SELECT key, value, revision FROM entries")
        return StoreContent(
            revision=numbers["revision"],
            lease=numbers["lease"],
            values={
                key: StoredValue(value=value, revision=revision) for key, value, revision in rows
            },
        )

    def write(
        self,
        *,
        revision: int,
        puts: Mapping[str, bytes] | None = None,
        deletes: Iterable[str] = (),
        lease: int | None = None,
    ) -> None:
        """Write one transaction durably.

        Raises:
            sqlite3.Error: it was rolled back, as far as SQLite can tell.
        """
        rows = [(key, value, revision, lease) for key, value in (puts or {}).items()]
        with _Transaction(self._connection) as write:
            write.executemany("DELETE FROM entries WHERE key = ?", [(key,) for key in deletes])
            write.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)", rows)
            write.execute("UPDATE numbers SET value = ? WHERE name = 'revision'", (revision,))

    def write_lease(self, lease: int) -> None:
        """Store the last granted lease, so that its number is never reused."""
        with _Transaction(self._connection) as write:
            write.execute("UPDATE numbers SET value = ? WHERE name = 'lease'", (lease,))

    def close(self) -> None:
        self._connection.close()

    def _set_up(self) -> None:
        run = self._connection.execute
        run("PRAGMA locking_mode = EXCLUSIVE")
        fresh = self._is_fresh()
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = FULL")
        # macOS only, where a plain fsync leaves the commit in the drive's cache.
        run("PRAGMA fullfsync = ON")
        if fresh:
            with _Transaction(self._connection) as write:
                for statement in _TABLES:
                    write.execute(statement)
        found = run("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise DiskFailed(f"{self._path} is damaged: {found}")

    def _is_fresh(self) -> bool:
        """True if the file is empty. Checked before any change, since it may be another application's."""
        application, version = self._number("application_id"), self._number("user_version")
        tables = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if application == version == tables == 0:
            return True
        if application != APPLICATION_ID:
            raise DataFolderMismatch(f"{self._path} is not a metadata store")
        if version != LAYOUT_VERSION:
            raise DataFolderMismatch(
                f"{self._path} has layout version {version}, this version of Respool knows {LAYOUT_VERSION}"
            )
        return False

    def _number(self, pragma: str) -> int:
        number: int = self._connection.execute(f"PRAGMA {pragma}").fetchone()[0]
        return number


def _make_file(path: str) -> None:
    """Create an empty file for this user only: it has what passwords are checked with.

    SQLite creates its log with the same mode.

    An existing one is not opened: closing any handle of it in this process would release SQLite's locks.
    """
    try:
        Descriptor(
            os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE_MODE)
        )
        sync_folder(os.path.dirname(path) or ".")
    except FileExistsError:
        return
    except OSError as error:
        raise failure("make", path, error) from error


class _Transaction:
    """BEGIN to COMMIT, or ROLLBACK after an exception."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> sqlite3.Connection:
        self._connection.execute("BEGIN IMMEDIATE")
        return self._connection

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            try:
                self._connection.execute("COMMIT")
            except sqlite3.Error:
                self._roll_back()
                raise
        else:
            self._roll_back()

    def _roll_back(self) -> None:
        # After some errors SQLite has rolled back already, and rejects a second ROLLBACK.
        with suppress(sqlite3.Error):
            self._connection.execute("ROLLBACK")
