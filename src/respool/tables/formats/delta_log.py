"""A table as a Delta log, written with delta-rs.

Positions are app transactions: `<topic>/<partition> <topic id>` = the next offset. delta-rs refuses a commit that is
made on an older version if a commit since then has an app transaction of the same name; it rebases others. It does not
compare the numbers, so an older position would be accepted: the writer compares first.
"""

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, PostCommitHookProperties, Transaction
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from respool.tables.errors import CommitUnknown, NoTable, TableAltered, TableConflict, TableExists
from respool.tables.formats.file_store import FileStore
from respool.tables.formats.table_log import (
    COMMIT,
    NOTE,
    TOPIC,
    TOPIC_ID,
    TableChange,
    TableFile,
    TableState,
    TopicIdentity,
    WrittenFile,
)
from respool.tables.layout import DATE, OFFSET, PARTITION, TIMESTAMP
from respool.tables.planning.data_file_names import parse_path
from respool.tables.planning.expiring import KnownVersion

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# This property lets Delta expire app transactions, and with them the positions.
_FORGETS = "delta.setTransactionRetentionDuration"
# How many of the newest versions are searched for a commit that got no answer.
_HISTORY = 1000
HOUR_MS = 3_600_000


class DeltaLog:
    kind = "delta"

    def __init__(self, location: str, partitions: int) -> None:
        self.files = FileStore(location)
        # Positions are looked up by name, so the number of partitions must be known; it may grow.
        self.partitions = partitions
        self._uri = str(self.files.local_folder) if self.files.is_local else location

    # -- versions

    def create(self, schema: pa.Schema, topic: TopicIdentity, *, by_day: bool) -> None:
        if DeltaTable.is_deltatable(self._uri):
            raise TableExists(
                f"there is a Delta table at {self.files.location} already",
                hint="choose another folder, or move that table away",
            )
        if self.files.is_local:
            self.files.local_folder.mkdir(parents=True, exist_ok=True)
        try:
            DeltaTable.create(
                self._uri,
                DeltaSchema.from_arrow(_nullable(schema)),
                mode="error",
                partition_by=[DATE] if by_day else [],
                name=topic.name,
                configuration={TOPIC: topic.name, TOPIC_ID: topic.id},
                raise_if_key_not_exists=False,
            )
        except DeltaError as error:
            raise TableExists(
                f"no table could be created at {self.files.location}: {error}"
            ) from error
        self._sync(0)

    def load(self, version: int | None = None) -> TableState:
        try:
            delta = DeltaTable(self._uri, version=version)
        except TableNotFoundError as error:
            raise NoTable(
                f"there is no Delta table at {self.files.location}",
                hint="was it moved or deleted? create one with: respool table create",
            ) from error
        except (DeltaError, OSError) as error:
            if version is not None:
                raise NoTable(
                    f"version {version} of the table cannot be loaded: {error}"
                ) from error
            raise TableAltered(
                f"the Delta log at {self.files.location} cannot be read: {error}",
                hint="restore _delta_log from a copy, or create the table again",
            ) from error
        return self._state(delta)

    def _state(self, delta: DeltaTable) -> TableState:
        metadata = delta.metadata()
        configuration = metadata.configuration
        if configuration.get(_FORGETS):
            raise TableAltered(
                f"the table at {self.files.location} has {_FORGETS} = {configuration[_FORGETS]}: its positions "
                "would expire, and rows would be written twice",
                hint="remove that table property",
            )
        topic = TopicIdentity(
            name=configuration.get(TOPIC) or "", id=configuration.get(TOPIC_ID) or ""
        )
        found = {
            number: delta.transaction_version(_reader(topic, number))
            for number in range(self.partitions)
        }
        return TableState(
            version=delta.version(),
            table_id=str(metadata.id),
            topic=topic,
            schema=pa.schema(delta.schema().to_arrow()),
            positions={number: at for number, at in found.items() if at is not None},
            handle=delta,
        )

    def commit(self, state: TableState, change: TableChange) -> TableState:
        delta: DeltaTable = state.handle
        for partition, position in change.positions.items():
            # delta-rs would silently accept an older position.
            assert position >= state.positions.get(partition, 0), (partition, position)
        now_ms = time.time_ns() // 1_000_000
        is_new = change.changes_rows
        actions = [
            *(_added(one, now_ms, is_new=is_new, by_day=_is_by_day(delta)) for one in change.added),
            *(_removed(one, now_ms, is_new=is_new) for one in change.removed),
        ]
        note = {NOTE: change.note} if change.note else {}
        try:
            delta.create_write_transaction(
                actions,
                "append",
                delta.schema(),
                delta.metadata().partition_columns,
                commit_properties=CommitProperties(
                    custom_metadata={COMMIT: change.token, **note},
                    app_transactions=[
                        Transaction(_reader(state.topic, partition), position, now_ms)
                        for partition, position in sorted(change.positions.items())
                    ],
                ),
                post_commithook_properties=PostCommitHookProperties(
                    create_checkpoint=True, cleanup_expired_logs=False
                ),
            )
        except CommitFailedError as error:
            raise TableConflict(f"another commit came first: {error}") from error
        except (DeltaError, OSError) as error:
            raise CommitUnknown(f"no answer to a commit: {error}") from error
        delta.update_incremental()
        self._sync(delta.version())
        return self._state(delta)

    def has_token(self, token: str, *, since: TableState) -> bool:
        delta = DeltaTable(self._uri)
        behind = delta.version() - since.version
        if behind <= 0:
            return False
        return any(one.get(COMMIT) == token for one in delta.history(min(behind, _HISTORY)))

    def add_columns(self, state: TableState, fields: Sequence[pa.Field]) -> None:
        delta: DeltaTable = state.handle
        new = DeltaSchema.from_arrow(_nullable(pa.schema(fields)))
        try:
            delta.alter.add_columns(
                [Field(one.name, one.type, nullable=True) for one in new.fields]
            )
        except CommitFailedError as error:
            raise TableConflict(f"another commit came first: {error}") from error
        except (DeltaError, OSError) as error:
            raise CommitUnknown(f"no answer to new columns: {error}") from error
        self._sync(delta.version())

    def write_schema(self, state: TableState) -> pa.Schema:
        return pa.schema([one for one in state.schema if one.name != DATE])

    def _sync(self, version: int) -> None:
        # delta-rs syncs nothing: without this, a power cut could empty the entry of a commit that was answered.
        with suppress(FileNotFoundError):
            self.files.sync(f"_delta_log/{version:020}.json")

    # -- files

    def table_files(self, state: TableState) -> list[TableFile]:
        delta: DeltaTable = state.handle
        found = pa.table(delta.get_add_actions(flatten=True))
        rows = found.to_pylist()
        return [
            TableFile(
                path=one["path"],
                size=int(one["size_bytes"]),
                rows=int(one.get("num_records") or 0),
                name=parse_path(one["path"]),
                timestamp_max=_microseconds(one.get(f"max.{TIMESTAMP}")),
                entry={DATE: str(one[f"partition.{DATE}"])} if f"partition.{DATE}" in one else {},
            )
            for one in rows
        ]

    def versions(self, state: TableState) -> list[KnownVersion]:
        delta: DeltaTable = state.handle
        found = [
            KnownVersion(id=int(one["version"]), made_ms=int(one.get("timestamp") or 0))
            for one in delta.history()
        ]
        return sorted(found, key=lambda one: one.id)

    def forget(self, state: TableState, versions: Sequence[int]) -> None:
        # Delta deletes old log entries once a checkpoint has their contents.
        del versions
        delta: DeltaTable = state.handle
        delta.create_checkpoint()
        delta.cleanup_metadata()

    def delete_unreferenced(self, state: TableState, *, older_than_ms: int, now_ms: int) -> int:
        del now_ms
        delta: DeltaTable = state.handle
        dropped = delta.vacuum(
            retention_hours=-(-older_than_ms // HOUR_MS),
            dry_run=False,
            enforce_retention_duration=False,
            full=True,
        )
        return len(dropped)


def _reader(topic: TopicIdentity, partition: int) -> str:
    return f"{topic.name}/{partition} {topic.id}"


def _is_by_day(delta: DeltaTable) -> bool:
    return DATE in delta.metadata().partition_columns


def _added(one: WrittenFile, now_ms: int, *, is_new: bool, by_day: bool) -> AddAction:
    lows = {OFFSET: one.offset_min, TIMESTAMP: _text(one.timestamp_min // 1000)}
    # Delta compares times by the millisecond: rounded up, or a filter would skip the last row.
    highs = {OFFSET: one.offset_max, TIMESTAMP: _text(-(-one.timestamp_max // 1000))}
    both = {PARTITION: one.name.partition}
    stats = {
        "numRecords": one.rows,
        "minValues": {**both, **lows},
        "maxValues": {**both, **highs},
        "nullCount": {PARTITION: 0, OFFSET: 0, TIMESTAMP: 0},
    }
    days: dict[str, str | None] = {DATE: one.name.day} if by_day else {}
    return AddAction(
        path=one.path,
        size=one.size,
        partition_values=days,
        modification_time=now_ms,
        data_change=is_new,
        stats=json.dumps(stats),
    )


def _removed(one: TableFile, now_ms: int, *, is_new: bool) -> RemoveAction:
    return RemoveAction(one.path, is_new, now_ms, size=one.size, partition_values=one.entry or {})


def _text(ms: int) -> str:
    seconds, rest = divmod(ms, 1000)
    try:
        at = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        at = datetime.max.replace(tzinfo=UTC) if seconds > 0 else _EPOCH.replace(year=1)
    return f"{at.strftime('%Y-%m-%dT%H:%M:%S')}.{rest:03}Z"


def _microseconds(value: Any) -> int | None:
    if not isinstance(value, datetime):
        return None
    at = value if value.tzinfo else value.replace(tzinfo=UTC)
    since = at - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([one.with_nullable(True) for one in schema])
