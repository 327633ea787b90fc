"""A table as a stream: whole versions, as many as bring enough rows, and up to where the query is to end."""

from datetime import date
from pathlib import Path
from shutil import rmtree

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from respool.pipeline.jobs import HistoryGone, TableReplaced
from respool.pipeline.table_schemas import structure
from respool.pipeline.table_stream import FilePart, TableStreamReader

SCHEMA = structure("number bigint, word string, date date")


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Versions 0 to 3, of three rows each."""
    return made(tmp_path, versions=4)


def made(tmp_path: Path, *, versions: int) -> Path:
    for version in range(versions):
        rows = [
            {"number": 3 * version + at, "word": str(version), "date": date(2026, 11, 12 + at % 2)}
            for at in range(3)
        ]
        write_deltalake(
            tmp_path / "made", pa.Table.from_pylist(rows), mode="append", partition_by="date"
        )
    return tmp_path / "made"


def reader(lake: Path, *, rows_per_batch: int = 100) -> TableStreamReader:
    return TableStreamReader(
        str(lake), SCHEMA, partition_by=("date",), rows_per_batch=rows_per_batch
    )


def numbers(stream: TableStreamReader, start: int, end: int) -> list[int]:
    parts = stream.partitions({"version": start}, {"version": end})
    found = []
    for part in parts:
        assert isinstance(part, FilePart)
        for batch in stream.read(part):
            assert batch.schema.names == ["number", "word", "date"]
            found += batch["number"].to_pylist()
            assert set(batch["date"].to_pylist()) <= {date(2026, 11, 12), date(2026, 11, 13)}
    return sorted(found)


def test_versions_bring_what_they_added_and_nothing_else(lake: Path) -> None:
    stream = reader(lake)
    start = stream.initialOffset()
    assert stream.latestOffset(start, ReadAllAvailable())["version"] == 3
    assert numbers(stream, -1, 3) == list(range(12))
    assert numbers(stream, 1, 2) == [6, 7, 8]
    assert numbers(stream, 3, 3) == []


def test_a_batch_ends_with_the_version_that_makes_it_large_enough(lake: Path) -> None:
    stream = reader(lake, rows_per_batch=4)
    limit = stream.getDefaultReadLimit()
    assert limit == ReadMaxRows(4)
    assert stream.latestOffset({"version": -1}, limit)["version"] == 1
    assert stream.latestOffset({"version": 1}, limit)["version"] == 3
    assert stream.latestOffset({"version": 3}, limit)["version"] == 3


def test_available_now_ends_at_what_was_there_when_it_began(lake: Path) -> None:
    stream = reader(lake)
    stream.prepareForTriggerAvailableNow()
    row = pa.table({"number": [99], "word": ["late"], "date": [date(2026, 11, 12)]})
    write_deltalake(lake, row, mode="append")
    assert stream.latestOffset({"version": 1}, stream.getDefaultReadLimit())["version"] == 3
    assert reader(lake).latestOffset({"version": 1}, ReadMaxRows(100))["version"] == 4


@pytest.mark.parametrize("versions", [2, 4, 6])
def test_a_table_that_was_made_again_is_not_taken_for_the_old_one(
    lake: Path, tmp_path: Path, versions: int
) -> None:
    stream = reader(lake)
    seen = stream.latestOffset(stream.initialOffset(), ReadMaxRows(100))
    rmtree(lake)
    made(tmp_path, versions=versions)
    again = reader(lake)
    with pytest.raises(TableReplaced, match="delete the tables made from made"):
        again.latestOffset(seen, ReadMaxRows(100))
    with pytest.raises(TableReplaced):
        again.partitions({"version": -1}, seen)
    # A checkpoint without the id shows it at least when versions are missing.
    if versions < 4:
        with pytest.raises(TableReplaced):
            again.latestOffset({"version": 3}, ReadMaxRows(100))


def test_a_new_reader_takes_the_table_whole_where_its_first_versions_left_the_log(
    lake: Path,
) -> None:
    DeltaTable(lake).create_checkpoint()
    for version in range(3):
        (lake / "_delta_log" / f"{version:020d}.json").unlink()
    stream = reader(lake, rows_per_batch=4)
    assert stream.latestOffset(stream.initialOffset(), ReadMaxRows(4))["version"] == 3
    assert numbers(stream, -1, 3) == list(range(12))
    # One that stands in between cannot tell what it has.
    with pytest.raises(HistoryGone, match="version 1 of made"):
        stream.latestOffset({"version": 0}, ReadMaxRows(4))
