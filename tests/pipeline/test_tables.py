"""Tables: what a commit promises, and what is left when one does not come to be."""

from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from pipeline.making import rides, settings
from respool.pipeline import bronze
from respool.pipeline.jobs import HistoryGone, TableChanged, TableReplaced
from respool.pipeline.staging import Staged, stage
from respool.pipeline.table_schemas import structure, table
from respool.pipeline.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = structure("number bigint, at timestamp, date date")


def numbers(spark: "SparkSession", *wanted: int, day: str = "2026-11-12") -> "DataFrame":
    rows = ", ".join(f"({one}L, timestamp'{day} 08:00:00', date'{day}')" for one in wanted)
    return spark.sql(f"select * from values {rows} as rows(number, at, date)")


def stored(one: Table, version: int | None = None) -> list[int]:
    return sorted(one.delta(version).to_pyarrow_table()["number"].to_pylist())


def test_a_commit_holds_rows_and_positions_together(spark: "SparkSession", tmp_path: Path) -> None:
    made = Table(tmp_path / "made", lambda: SCHEMA)
    assert made.version == -1
    assert made.position("rides/0") is None
    first = made.append(numbers(spark, 1, 2), positions={"rides/0": 2, "rides/1": 0})
    assert (first.version, first.rows) == (1, 2)
    made.append(numbers(spark, 3, day="2026-11-13"), positions={"rides/0": 3})
    assert stored(made) == [1, 2, 3]
    assert stored(made, version=1) == [1, 2]
    assert (made.position("rides/0"), made.position("rides/1")) == (3, 0)
    # Spark, DuckDB and Polars read the same.
    read = made.read(spark, partitions=["2026-11-13"]).collect()
    assert [(one["number"], str(one["date"])) for one in read] == [(3, "2026-11-13")]
    arrow = made.delta().to_pyarrow_dataset()  # noqa: F841 - DuckDB finds it by its name
    counted = duckdb.connect().execute("select sum(number), count(distinct date) from arrow")
    assert counted.fetchall() == [(6, 2)]
    assert pl.read_delta(str(made.path))["number"].sum() == 6


def test_replacing_days_leaves_the_others(spark: "SparkSession", tmp_path: Path) -> None:
    made = Table(tmp_path / "made", lambda: SCHEMA)
    made.append(numbers(spark, 1, 2), positions={})
    made.append(numbers(spark, 3, day="2026-11-13"), positions={})
    made.replace(
        numbers(spark, 4), partitions=["2026-11-12"], positions={"x": 1}, before=made.delta()
    )
    assert stored(made) == [3, 4]
    assert stored(made, version=2) == [1, 2, 3]
    with pytest.raises(HistoryGone, match="removed rows"):
        made.additions(after=2, upto=3)
    assert [one.rows for one in made.additions(after=0, upto=2)] == [2, 1]


def test_of_two_that_commit_the_same_step_one_is_refused_and_leaves_nothing(
    spark: "SparkSession", tmp_path: Path
) -> None:
    made = Table(tmp_path / "made", lambda: SCHEMA)
    made.append(numbers(spark, 1), positions={"x": 1})
    seen_by_both = made.delta()
    staged = stage(numbers(spark, 2), made.path, made.partition_by)
    made.append(numbers(spark, 2), positions={"x": 2})
    with pytest.raises(TableChanged, match="changed nothing"):
        made.commit(staged, positions={"x": 2}, before=seen_by_both)
    assert stored(made) == [1, 2]
    assert len(list(made.path.glob("date=*/*.parquet"))) == 2


def test_a_commit_that_went_through_though_its_answer_failed_keeps_its_files(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Table(tmp_path / "made", lambda: SCHEMA)
    through = DeltaTable.create_write_transaction

    def failing(*arguments: Any, **named: Any) -> None:
        through(*arguments, **named)
        raise CommitFailedError("no answer")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", failing)
    done = made.append(numbers(spark, 1, 2), positions={"x": 1})
    assert (done.version, done.rows) == (1, 2)
    assert stored(made) == [1, 2]


def test_a_position_in_a_table_that_was_made_again_is_refused(tmp_path: Path) -> None:
    source, reader = (
        Table(tmp_path / "source", lambda: SCHEMA),
        Table(tmp_path / "reader", lambda: SCHEMA),
    )
    source.made()
    assert reader.has_read(source, reader.made()) == -1
    reader.commit(Staged.nothing(reader.path), positions=reader.reads(source, 7))
    assert reader.has_read(source, reader.made()) == 7
    rmtree(source.path)
    source.made()
    with pytest.raises(TableReplaced, match=f"delete {reader.path}"):
        reader.has_read(source, reader.made())


def test_nothing_new_makes_no_version(spark: "SparkSession", tmp_path: Path) -> None:
    made = Table(tmp_path / "made", lambda: SCHEMA)
    made.append(numbers(spark, 1), positions={"x": 1})
    again = made.append(numbers(spark, 2).where("false"), positions={"x": 1})
    assert again.version is None
    assert made.version == 1


def test_cleaning_removes_what_failed_tries_left_and_no_row(
    spark: "SparkSession", tmp_path: Path
) -> None:
    made = Table(tmp_path / "made", lambda: SCHEMA)
    made.append(numbers(spark, 1), positions={})
    stage(numbers(spark, 2), made.path, made.partition_by)
    stray = made.path / "date=2026-11-12" / "part-stray.parquet"
    stray.write_bytes(b"put in place, and then the power went")
    assert made.clean(kept_hours=0) == 2
    assert not stray.exists()
    assert not list((made.path / "_staging").iterdir())
    assert stored(made) == [1]


@pytest.mark.parametrize("dies_after", ["stage", "put_in_place", "commit"])
def test_bronze_that_dies_anywhere_adds_nothing_twice_when_its_batch_comes_again(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_after: str
) -> None:
    made = rides(count=300)
    told = settings(tmp_path)
    lake = table(told, "bronze")
    readers = {number: f"rides/{number}" for number in range(3)}
    bronze.add_batch(lake, made.frame(spark, made.rows[:100]), readers=readers)

    class Killed(Exception):
        pass

    def dying(*_: object, **__: object) -> None:
        raise Killed

    batch = made.frame(spark, made.rows[100:])
    with monkeypatch.context() as patch:
        if dies_after == "stage":
            patch.setattr("respool.pipeline.tables.put_in_place", dying)
        elif dies_after == "put_in_place":
            patch.setattr("respool.pipeline.tables._additions", dying)
        else:
            patch.setattr("respool.pipeline.tables.DeltaTable.update_incremental", dying)
        with pytest.raises(Killed):
            bronze.add_batch(lake, batch, readers=readers)
    again = bronze.add_batch(lake, batch, readers=readers)
    assert again.rows == (0 if dies_after == "commit" else 200)
    found = lake.delta().to_pyarrow_table(columns=["partition", "offset"]).to_pylist()
    wanted = [{"partition": one["partition"], "offset": one["offset"]} for one in made.rows]
    assert sorted(map(str, found)) == sorted(map(str, wanted))
