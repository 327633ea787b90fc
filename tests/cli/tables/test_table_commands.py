"""`respool table`: a topic is made a table, filled, followed, joined, and old versions are forgotten."""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable

from cli.commands import Commands
from cli.running import Run
from respool.cli.exit_codes import ExitCode
from respool.testing import Broker


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(topics={"rides": 2}) as running:
        yield running


class TableCommands(Commands):
    def produce(self, *values: str) -> None:
        for number, value in enumerate(values):
            self("produce", "rides", "-m", value, "-p", str(number % 2))


@pytest.fixture
def commands(run: Run, broker: Broker) -> TableCommands:
    return TableCommands(run, broker)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_topic_becomes_a_table_and_is_followed(
    commands: TableCommands, tmp_path: Path, kind: str
) -> None:
    commands.produce('{"id":1}', '{"id":2,"city":"Oslo"}', "null")
    made = commands.json(
        "table",
        "create",
        "rides",
        "--at",
        str(tmp_path / "lake"),
        "--format",
        kind,
        "--schema",
        "infer",
    )
    assert {one["column"] for one in made["columns"]} >= {"_offset", "id", "city", "_rest"}
    settings = commands.json("topic", "describe", "rides")["topics"][0]["settings"]
    assert {one["name"]: one["value"] for one in settings}["respool.table"] == kind
    assert commands.json("table", "run", "rides", "--once") == {
        "topic": "rides",
        "row_count": 2,
        "file_count": 2,
        "rejected_count": 1,
        "commit_count": 1,
        "deleted_offset_count": 0,
    }
    commands.produce('{"id":3}')
    status = commands.json("table", "status", "rides")
    assert (status["row_count"], status["rejected_count"], status["lag"], status["problem"]) == (
        2,
        1,
        1,
        None,
    )
    assert commands.json("table", "run", "rides", "--once")["row_count"] == 1
    assert commands.json("table", "run", "rides", "--once")["commit_count"] == 0
    status = commands.json("table", "status", "rides")
    assert [(one["position"], one["lag"]) for one in status["partitions"]] == [(3, 0), (1, 0)]
    joined = commands.json("table", "compact", "rides")
    assert joined["joined_count"] == 2
    assert commands.json("table", "status", "rides")["file_count"] == 2
    expired = commands.json("table", "expire", "rides", "--keep", "1", "--files-older-than", "0ms")
    assert expired["file_count"] >= 2
    assert commands.json("table", "status", "rides")["row_count"] == 3


def test_every_reader_sees_the_same_rows(commands: TableCommands, tmp_path: Path) -> None:
    commands(
        "table", "create", "rides", "--at", str(tmp_path / "lake"), "--schema", "declared:id long"
    )
    commands.produce('{"id":1}', '{"id":2}', '{"id":3,"more":true}')
    commands("table", "run", "rides", "--once")
    lake = str(tmp_path / "lake")
    assert sorted(pl.read_delta(lake)["id"].to_list()) == [1, 2, 3]
    assert sorted(DeltaTable(lake).to_pandas()["id"].tolist()) == [1, 2, 3]
    rows = DeltaTable(lake).to_pyarrow_table()  # noqa: F841 - DuckDB finds it by its name
    found = duckdb.connect().execute("select id, _rest from rows where id = 3").fetchall()
    assert found == [(3, '{"more":true}')]


def test_what_cannot_work_is_said_before_anything_is_made(
    commands: TableCommands, tmp_path: Path
) -> None:
    lake = str(tmp_path / "lake")
    ended = commands("table", "run", "rides", "--once", code=ExitCode.FAILED)
    assert "topic rides has no table" in ended.err
    ended = commands(
        "table", "create", "rides", "--at", lake, "--schema", "csv", code=ExitCode.USAGE
    )
    assert "is not one of: raw, infer" in ended.err
    ended = commands(
        "table", "create", "rides", "--at", lake, "--schema", "registry", code=ExitCode.USAGE
    )
    assert "needs respool.table.registry" in ended.err
    commands("table", "create", "missing", "--at", lake, code=ExitCode.NOT_FOUND)
    ended = commands("table", "run", "rides", "--share", "3/2", code=ExitCode.USAGE)
    assert "--share" in ended.err
    assert not (tmp_path / "lake").exists()
    commands("table", "create", "rides", "--at", lake)
    ended = commands("table", "create", "rides", "--at", lake, code=ExitCode.FAILED)
    assert "has a delta table" in ended.err


def test_writers_share_partitions(commands: TableCommands, tmp_path: Path) -> None:
    commands.produce("a", "b", "c")
    commands("table", "create", "rides", "--at", str(tmp_path / "lake"))
    assert commands.json("table", "run", "rides", "--once", "--share", "2/2")["row_count"] == 1
    assert commands.json("table", "run", "rides", "--once", "--share", "1/2")["row_count"] == 2


def test_a_topic_made_again_is_not_mixed_into_the_table(
    commands: TableCommands, broker: Broker, tmp_path: Path
) -> None:
    commands.produce("old")
    commands("table", "create", "rides", "--at", str(tmp_path / "lake"))
    commands("table", "run", "rides", "--once")
    commands("topic", "delete", "rides", "--yes")
    broker.create_topic(
        "rides", partitions=2, respool_table="delta", respool_table_location=str(tmp_path / "lake")
    )
    commands.produce("new")
    ended = commands("table", "run", "rides", "--once", code=ExitCode.FAILED)
    assert "belongs to topic rides" in ended.err
    assert "belongs to topic" in commands.json("table", "status", "rides")["problem"]
