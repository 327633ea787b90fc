"""What Iceberg's catalogs, and pyiceberg's own rules, leave to us."""

from pathlib import Path

import pyarrow as pa
import pytest

from respool.tables.errors import NoTable, TableConflict, TableExists
from respool.tables.formats.table_log import POSITION, TableChange
from tables.making import (
    RIDES,
    MemoryTopic,
    make_table,
    make_writer,
    offsets_of,
    open_log,
    settings_of,
)


def made(folder: Path) -> MemoryTopic:
    return MemoryTopic(settings_of(folder, "iceberg"), {0: [b"a", b"b"], 1: [b"c"]})


def test_a_refused_commit_is_not_repeated_by_the_library(tmp_path: Path) -> None:
    """By default pyiceberg repeats it on the newer snapshot, also if the table's properties are taken away."""
    topic = made(tmp_path)
    log = make_table(topic)
    with log.load().handle.transaction() as transaction:
        transaction.remove_properties("commit.retry.num-retries")
    stale = log.load()
    make_writer(topic, log).round()
    for change in (TableChange(token="t", positions={0: 2}), TableChange(token="t")):
        with pytest.raises(TableConflict):
            log.commit(stale, change)
    assert len(offsets_of(log)) == 3


def test_positions_survive_the_expiry_of_their_snapshots(tmp_path: Path) -> None:
    topic = made(tmp_path)
    log = make_table(topic)
    make_writer(topic, log).round()
    first = log.load().version
    topic.values[1] += [b"d"]
    make_writer(topic, log).round()
    state = log.load()
    summary = state.handle.snapshot_by_id(first).summary.additional_properties
    assert summary[f"{POSITION}.{RIDES.id}.0"] == "2"
    log.forget(state, [first])
    assert [one.id for one in log.versions(log.load())] == [state.version]
    assert log.load().positions == {0: 2, 1: 2}
    with pytest.raises(NoTable, match="no snapshot"):
        log.load(first)


def test_a_name_that_the_catalog_has_is_not_taken(tmp_path: Path) -> None:
    topic = made(tmp_path)
    make_table(topic)
    with pytest.raises(TableExists, match=r"respool\.rides already"):
        make_table(topic)


def test_an_older_snapshot_has_its_own_rows_and_columns(tmp_path: Path) -> None:
    topic = made(tmp_path)
    log = make_table(topic)
    make_writer(topic, log).round()
    before = log.load()
    log.add_columns(before, [pa.field("city", pa.string())])
    topic.values[0] += [b"d"]
    make_writer(topic, open_log(topic)).round()
    assert "city" in log.load().schema.names
    then = log.load(before.version)
    assert "city" not in then.schema.names
    assert sum(one.rows for one in log.table_files(then)) == 3


def test_files_that_no_snapshot_names_are_deleted_after_their_time(tmp_path: Path) -> None:
    topic = made(tmp_path)
    log = make_table(topic)
    make_writer(topic, log).round()
    orphan = tmp_path / "table" / "data" / "0" / "left.parquet"
    orphan.write_bytes(b"x")
    changed = next(
        one.changed_ms for one in log.files.list("data") if one.path.endswith("left.parquet")
    )
    assert log.delete_unreferenced(log.load(), older_than_ms=1000, now_ms=changed + 1000) == 0
    assert log.delete_unreferenced(log.load(), older_than_ms=1000, now_ms=changed + 1001) >= 1
    assert not orphan.exists()
    assert len(offsets_of(open_log(topic))) == 3


def test_a_missing_table_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NoTable, match=r"no table respool\.rides"):
        open_log(made(tmp_path)).load()
