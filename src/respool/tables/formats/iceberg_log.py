"""A table as an Iceberg table, written with pyiceberg.

Positions are table properties, `respool.position.<topic id>.<partition>`, and the same in the snapshot's summary, set
in the transaction that appends the files. The properties survive expiry and commits of others; the summary says
which snapshot added which offsets. Properties alone could be overwritten blindly, so every commit has a snapshot, if
only an empty one: the catalog compares the table's snapshot with the one it was loaded with.

pyiceberg would repeat a refused commit on a newer snapshot, and double its rows, unless the table's own properties
forbid it; so the transaction's updates are given to the catalog here, once. Nor does it delete the manifests of a
commit here whose answer may have been lost.
"""

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from respool.tables.errors import CommitUnknown, NoTable, TableAltered, TableConflict, TableExists
from respool.tables.formats.file_store import FileStore
from respool.tables.formats.iceberg_catalogs import open_catalog
from respool.tables.formats.table_log import (
    COMMIT,
    NOTE,
    POSITION,
    TOPIC,
    TOPIC_ID,
    TableChange,
    TableFile,
    TableState,
    TopicIdentity,
    WrittenFile,
)
from respool.tables.layout import DATE, TIMESTAMP
from respool.tables.planning.data_file_names import parse_path
from respool.tables.planning.expiring import KnownVersion

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table, Transaction

_EMPTY = -1
_PROPERTIES = {
    # For other writers with pyiceberg: ours are not repeated anyway.
    "commit.retry.num-retries": "0",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "write.parquet.compression-codec": "zstd",
    "commit.manifest.min-count-to-merge": "50",
}


class IcebergLog:
    kind = "iceberg"

    def __init__(
        self, location: str, catalog: str, name: str, *, beside: str | None = None
    ) -> None:
        """`beside`: the location of an embedded catalog, if it is not the table's own folder.

        Raises:
            DependencyMissing, TableError
        """
        self.files = FileStore(location)
        namespace, _dot, table = name.rpartition(".")
        self._namespace, self._name = namespace or "respool", table
        self._catalog = open_catalog(catalog, FileStore(beside or location))

    @property
    def _identifier(self) -> tuple[str, ...]:
        return (*self._namespace.split("."), self._name)

    # -- versions

    def create(self, schema: pa.Schema, topic: TopicIdentity, *, by_day: bool) -> None:
        from pyiceberg.exceptions import TableAlreadyExistsError

        try:
            self._catalog.create_namespace_if_not_exists(tuple(self._namespace.split(".")))
            made = self._catalog.create_table(
                self._identifier,
                schema,
                location=self.files.location,
                properties={**_PROPERTIES, TOPIC: topic.name, TOPIC_ID: topic.id},
            )
        except TableAlreadyExistsError as error:
            raise TableExists(
                f"the catalog has a table {'.'.join(self._identifier)} already",
                hint="choose another name (--name) or folder, or drop that table",
            ) from error
        if by_day:
            with made.update_spec() as spec:
                spec.add_identity(DATE)
        self._hint(made)

    def load(self, version: int | None = None) -> TableState:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            table = self._catalog.load_table(self._identifier)
        except NoSuchTableError as error:
            raise NoTable(
                f"the catalog has no table {'.'.join(self._identifier)}",
                hint="was it moved or dropped? create one with: respool table create",
            ) from error
        except FileNotFoundError as error:
            raise TableAltered(
                f"the metadata of table {'.'.join(self._identifier)} are gone: {error}",
                hint="restore the table's folder from a copy, or drop the table and create it again",
            ) from error
        except OSError as error:
            raise CommitUnknown(f"the catalog does not answer: {error}") from error
        return self._state(table, version)

    def _state(self, table: "Table", version: int | None = None) -> TableState:
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        properties = table.metadata.properties
        snapshot = table.current_snapshot()
        schema = table.schema()
        if version is not None:
            snapshot = table.snapshot_by_id(version)
            if snapshot is None:
                raise NoTable(
                    f"the table has no snapshot {version}",
                    hint="it may have expired: respool table expire removes old snapshots",
                )
            schema = table.schemas()[snapshot.schema_id or 0]
        topic = TopicIdentity(name=properties.get(TOPIC, ""), id=properties.get(TOPIC_ID, ""))
        prefix = f"{POSITION}.{topic.id}."
        positions = {
            int(name.removeprefix(prefix)): int(value)
            for name, value in properties.items()
            if name.startswith(prefix) and value.isdecimal()
        }
        return TableState(
            version=_EMPTY if snapshot is None else snapshot.snapshot_id,
            table_id=str(table.metadata.table_uuid),
            topic=topic,
            schema=_small(schema_to_pyarrow(schema)),
            positions=positions,
            handle=table,
        )

    def commit(self, state: TableState, change: TableChange) -> TableState:
        table: Table = state.handle
        for partition, position in change.positions.items():
            assert position >= state.positions.get(partition, 0), (partition, position)
        positions = {
            f"{POSITION}.{state.topic.id}.{partition}": str(position)
            for partition, position in sorted(change.positions.items())
        }
        summary = {**positions, COMMIT: change.token}
        if change.note:
            summary[NOTE] = change.note
        transaction = table.transaction()
        if positions:
            transaction.set_properties(positions)
        update = transaction.update_snapshot(snapshot_properties=summary)
        added = [_data_file(table, self.files.url_of(one.path), one) for one in change.added]
        if change.removed:
            with update.overwrite() as overwrite:
                for one in change.removed:
                    overwrite.delete_data_file(one.entry)
                for new in added:
                    overwrite.append_data_file(new)
        else:
            with update.merge_append() as append:
                for new in added:
                    append.append_data_file(new)
        return self._committed(table, transaction)

    def _committed(self, table: "Table", transaction: "Transaction") -> TableState:
        from pyiceberg.exceptions import CommitFailedException
        from pyiceberg.table.update import AssertTableUUID

        # The transaction's own commit would retry.
        updates = transaction._updates  # noqa: SLF001
        requirements = (
            *transaction._requirements,  # noqa: SLF001
            AssertTableUUID(uuid=table.metadata.table_uuid),
        )
        try:
            answer = self._catalog.commit_table(table, requirements, updates)
        except CommitFailedException as error:
            raise TableConflict(f"another commit came first: {error}") from error
        except Exception as error:
            # Any error of the catalog's library may have occurred after the commit took effect.
            raise CommitUnknown(f"no answer to a commit: {error}") from error
        table.metadata, table.metadata_location = answer.metadata, answer.metadata_location
        self._hint(table)
        return self._state(table)

    def has_token(self, token: str, *, since: TableState) -> bool:
        table = self._catalog.load_table(self._identifier)
        snapshot = table.current_snapshot()
        while snapshot is not None and snapshot.snapshot_id != since.version:
            summary = snapshot.summary
            if summary is not None and summary.additional_properties.get(COMMIT) == token:
                return True
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else table.snapshot_by_id(parent)
        return False

    def add_columns(self, state: TableState, fields: Sequence[pa.Field]) -> None:
        table: Table = state.handle
        transaction = table.transaction()
        with transaction.update_schema() as update:
            update.union_by_name(pa.schema([*_without_ids(state.schema, fields), *fields]))
        self._committed(table, transaction)

    def write_schema(self, state: TableState) -> pa.Schema:
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        return _small(schema_to_pyarrow(state.handle.schema()), with_ids=True)

    def _hint(self, table: "Table") -> None:
        """DuckDB and others find the newest metadata of a folder by this file."""
        if not self.files.is_local:
            return
        name = table.metadata_location.rsplit("/", 1)[-1].removesuffix(".metadata.json")
        folder = self.files.local_folder / "metadata"
        aside = folder / f".hint-{time.monotonic_ns():x}"
        with suppress(OSError):
            self.files.sync(f"metadata/{name}.metadata.json")
            aside.write_text(name)
            aside.replace(folder / "version-hint.text")

    # -- files

    def table_files(self, state: TableState) -> list[TableFile]:
        table: Table = state.handle
        if state.version == _EMPTY:
            return []
        at = next(one.field_id for one in table.schema().fields if one.name == TIMESTAMP)
        found = []
        for task in table.scan(snapshot_id=state.version).plan_files():
            file = task.file
            path = self.files.relative(file.file_path)
            highest = (file.upper_bounds or {}).get(at)
            found.append(
                TableFile(
                    path=path,
                    size=file.file_size_in_bytes,
                    rows=file.record_count,
                    name=parse_path(path),
                    timestamp_max=None
                    if highest is None
                    else int.from_bytes(highest, "little", signed=True),
                    entry=file,
                )
            )
        return found

    def versions(self, state: TableState) -> list[KnownVersion]:
        table: Table = state.handle
        found = [
            KnownVersion(id=one.snapshot_id, made_ms=one.timestamp_ms)
            for one in table.metadata.snapshots
        ]
        order = {one.snapshot_id: one.sequence_number or 0 for one in table.metadata.snapshots}
        return sorted(found, key=lambda one: order[one.id])

    def forget(self, state: TableState, versions: Sequence[int]) -> None:
        from pyiceberg.table.update import RemoveSnapshotsUpdate

        if not versions:
            return
        table: Table = state.handle
        transaction = table.transaction()
        transaction._apply((RemoveSnapshotsUpdate(snapshot_ids=list(versions)),))  # noqa: SLF001
        self._committed(table, transaction)

    def delete_unreferenced(self, state: TableState, *, older_than_ms: int, now_ms: int) -> int:
        table: Table = state.handle
        kept = set()
        for snapshot in table.metadata.snapshots:
            kept.add(self.files.relative(snapshot.manifest_list))
            for manifest in snapshot.manifests(table.io):
                kept.add(self.files.relative(manifest.manifest_path))
                for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                    kept.add(self.files.relative(entry.data_file.file_path))
        kept.add(self.files.relative(table.metadata_location))
        kept.update(self.files.relative(one.metadata_file) for one in table.metadata.metadata_log)
        dropped = 0
        for folder in ("data", "metadata"):
            for one in list(self.files.list(folder)):
                is_hint = one.path.endswith("version-hint.text")
                if one.path not in kept and not is_hint and one.changed_ms < now_ms - older_than_ms:
                    self.files.delete(one.path)
                    dropped += 1
        return dropped


def _data_file(table: "Table", url: str, one: WrittenFile) -> "DataFile":
    from pyiceberg.io.pyarrow import parquet_file_to_data_file

    del one
    return parquet_file_to_data_file(table.io, table.metadata, url)


def _small(schema: pa.Schema, *, with_ids: bool = False) -> pa.Schema:
    """pyiceberg's schema with Arrow's ordinary types, as record batches of messages have them."""
    return pa.schema([_small_field(one, with_ids) for one in schema])


def _small_field(field: pa.Field, with_ids: bool) -> pa.Field:
    metadata = field.metadata if with_ids else None
    return pa.field(field.name, _small_type(field.type, with_ids), metadata=metadata)


def _small_type(kind: pa.DataType, with_ids: bool) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(_small_field(kind.value_field, with_ids).with_name("element"))
    if pa.types.is_struct(kind):
        return pa.struct([_small_field(kind.field(at), with_ids) for at in range(kind.num_fields)])
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    return kind


def _without_ids(schema: pa.Schema, replaced: Sequence[pa.Field]) -> list[pa.Field]:
    names = {one.name for one in replaced}
    return [one for one in schema if one.name not in names]
