"""The writer: every committed record of the topic is in the table once, whatever happens to commits."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import duckdb
import polars as pl
import pytest

from respool.tables.errors import (
    CommitUnknown,
    ForeignTable,
    NoTable,
    PositionBeyondLog,
    RecordsDeleted,
    TableAltered,
    TableConflict,
)
from respool.tables.formats.table_log import TableChange, TableLog, TableState, TopicIdentity
from tables.making import (
    MemoryTopic,
    make_table,
    make_writer,
    numbers,
    offsets_of,
    open_log,
    rows_of,
    settings_of,
)

KINDS = ("delta", "iceberg")


@pytest.fixture(params=KINDS)
def topic(request: pytest.FixtureRequest, tmp_path: Path) -> MemoryTopic:
    values: dict[int, list[bytes | None]] = {
        0: [b"a", b"b", None, b"c", b"d", b"e", b"f"],
        1: [b"x", None, None, b"y"],
    }
    return MemoryTopic(settings_of(tmp_path, request.param), values)


def everything(topic: MemoryTopic) -> list[tuple[int, int]]:
    return [
        (partition, offset)
        for partition, values in sorted(topic.values.items())
        for offset, value in enumerate(values)
        if value is not None or (partition, offset) in topic.tombstones
    ]


def test_a_round_writes_what_the_table_lacks_and_the_next_one_nothing(topic: MemoryTopic) -> None:
    log = make_table(topic)
    writer = make_writer(topic, log)
    assert writer.round().rows == 8
    assert offsets_of(log) == everything(topic)
    assert log.load().positions == {0: 7, 1: 4}
    assert (writer.round().rows, writer.round().commits) == (0, 0)
    topic.values[1] += [b"z", None]
    assert writer.round().rows == 1
    assert offsets_of(log) == everything(topic)
    assert log.load().positions == {0: 7, 1: 6}
    values = rows_of(log)
    assert values["_value"].to_pylist() == [b"a", b"b", b"c", b"d", b"e", b"f", b"x", b"y", b"z"]
    assert values["_key"].to_pylist()[0] == b"k0"
    assert values["_headers"].to_pylist()[:2] == [[], [{"key": "h", "value": b"1"}]]


def test_offsets_without_records_move_the_position(topic: MemoryTopic) -> None:
    topic.values = {0: [None, None, None]}
    log = make_table(topic)
    assert make_writer(topic, log).round().commits == 1
    assert (log.load().positions, log.table_files(log.load())) == ({0: 3}, [])
    # Nor is it asked for again.
    assert make_writer(topic, log).round().commits == 0


def test_two_writers_at_once_write_each_record_once(topic: MemoryTopic) -> None:
    log = make_table(topic)
    first, second = make_writer(topic, log), make_writer(topic, new_random=other_numbers())
    meanwhile = [second]

    def let_the_other_one_write() -> None:
        if meanwhile:
            meanwhile.pop().round()

    topic.before_piece = let_the_other_one_write
    result = first.round()
    assert (result.rows, result.overtaken) == (0, 2)
    assert offsets_of(log) == everything(topic)
    # The files of the one that lost are gone.
    kept = {one.path for one in log.table_files(log.load())}
    assert {one.path for one in log.files.list("data")} == kept


def other_numbers() -> Callable[[], str]:
    made = numbers()
    return lambda: f"f{made()[1:]}"


class FaultyLog:
    """A table whose commits fail as those of an object store do."""

    def __init__(self, log: TableLog, *, lost: int = 0, refused: int = 0) -> None:
        self._log = log
        # Commits that take effect, without an answer; and those that do not, without one.
        self.lost = lost
        self.refused = refused

    def commit(self, state: TableState, change: TableChange) -> TableState:
        if self.refused:
            self.refused -= 1
            raise CommitUnknown("no answer")
        found = self._log.commit(state, change)
        if self.lost:
            self.lost -= 1
            raise TableConflict("the file exists already, by the first attempt of the same call")
        return found

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)


def test_a_lost_answer_to_a_commit_doubles_nothing(topic: MemoryTopic) -> None:
    log = make_table(topic)
    result = make_writer(topic, FaultyLog(log, lost=1)).round()  # type: ignore[arg-type]
    assert (result.rows, result.overtaken) == (8, 0)
    assert offsets_of(log) == everything(topic)


def test_a_commit_that_never_arrived_is_made_again(topic: MemoryTopic) -> None:
    log = make_table(topic)
    result = make_writer(topic, FaultyLog(log, refused=2)).round()  # type: ignore[arg-type]
    assert (result.rows, result.overtaken) == (8, 0)
    assert offsets_of(log) == everything(topic)


def test_a_writer_that_dies_before_a_commit_leaves_no_rows(topic: MemoryTopic) -> None:
    log = make_table(topic)

    class Killed(BaseException):
        pass

    def die() -> None:
        raise Killed

    seen = iter(range(2))
    topic.before_piece = lambda: None if next(seen, None) is not None else die()
    with pytest.raises(Killed):
        make_writer(topic, log).round()
    assert offsets_of(log) == []
    topic.before_piece = lambda: None
    assert make_writer(topic, log).round().rows == 8
    assert offsets_of(log) == everything(topic)


def test_small_files_are_committed_one_by_one_in_a_backfill(topic: MemoryTopic) -> None:
    # Bytes that cannot be compressed.
    topic.values = {0: [Random(number).randbytes(30_000) for number in range(9)]}
    topic.settings_now = settings_of(
        Path(topic.settings_now.respool_table_location).parent,
        str(topic.settings_now.respool_table),
        file_bytes=str(64 * 1024),
    )
    log = make_table(topic)
    result = make_writer(topic, log).round()
    assert (result.commits, result.files, result.rows) == (3, 3, 9)
    names = [one.name for one in log.table_files(log.load())]
    assert sorted((one.first, one.next) for one in names if one) == [(0, 3), (3, 6), (6, 9)]


def test_deleted_records_stop_the_writer_or_are_said_in_the_history(topic: MemoryTopic) -> None:
    log = make_table(topic)
    make_writer(topic, log).round()
    topic.values[0] += [b"g"] * 5
    topic.starts[0] = 9
    with pytest.raises(RecordsDeleted, match=r"2 offsets of rides were deleted .* offsets 7 to 8"):
        make_writer(topic, log).round()
    folder = Path(topic.settings_now.respool_table_location).parent
    topic.settings_now = settings_of(folder, str(topic.settings_now.respool_table), gap="continue")
    result = make_writer(topic, log).round()
    assert (result.rows, result.gaps) == (3, 2)
    assert log.load().positions[0] == 12


def test_a_log_that_is_shorter_than_the_table_is_refused(topic: MemoryTopic) -> None:
    log = make_table(topic)
    make_writer(topic, log).round()
    topic.values[0] = topic.values[0][:2]
    with pytest.raises(PositionBeyondLog, match="up to offset 7, and the log ends at 2"):
        make_writer(topic, log).round()


def test_a_topic_made_again_needs_another_table(topic: MemoryTopic) -> None:
    log = make_table(topic)
    writer = make_writer(topic, log)
    writer.round()
    topic.topic = TopicIdentity(name="rides", id="8d3f9c1e-0000-4000-8000-000000000002")
    with pytest.raises(ForeignTable, match="belongs to topic rides"):
        writer.round()
    assert len(offsets_of(log)) == 8


def test_a_table_that_is_not_there_is_named(topic: MemoryTopic) -> None:
    with pytest.raises(NoTable, match=r"no .*table"):
        make_writer(topic).round()


def test_a_column_that_someone_else_dropped_stops_the_writer(tmp_path: Path) -> None:
    topic = MemoryTopic(settings_of(tmp_path, "iceberg"), {0: [b"a"]})
    log = make_table(topic)
    table = log.load().handle
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("_key")
    with pytest.raises(TableAltered, match=r"column _key .* is missing"):
        make_writer(topic, log).round()


def test_a_setting_that_forgets_positions_is_refused(tmp_path: Path) -> None:
    topic = MemoryTopic(settings_of(tmp_path), {0: [b"a"]})
    log = make_table(topic)
    log.load().handle.alter.set_table_properties(
        {"delta.setTransactionRetentionDuration": "interval 1 day"}
    )
    with pytest.raises(TableAltered, match="its positions would expire"):
        make_writer(topic, log).round()


def test_days_divide_files_and_no_row_is_lost(topic: MemoryTopic) -> None:
    folder = Path(topic.settings_now.respool_table_location).parent
    topic.settings_now = settings_of(
        folder, str(topic.settings_now.respool_table), partition_by="day"
    )
    topic.values = {0: [b"x"] * 60}
    topic.rows_per_piece = 50
    log = make_table(topic)
    make_writer(topic, log).round()
    files = log.table_files(log.load())
    assert sorted(one.name.day or "" for one in files if one.name) == [
        "2023-11-14",
        "2023-11-15",
        "2023-11-16",
        "2023-11-17",
    ]
    assert offsets_of(log) == everything(topic)


def test_other_readers_see_the_same_rows(tmp_path: Path) -> None:
    topic = MemoryTopic(settings_of(tmp_path), {0: [b"a", None, b"b"], 1: [b"c"]})
    log = make_table(topic)
    make_writer(topic, log).round()
    location = str(tmp_path / "table")
    assert sorted(pl.read_delta(location)["_value"].to_list()) == [b"a", b"b", b"c"]
    dataset = log.load().handle.to_pyarrow_dataset()
    found = duckdb.connect().execute("select _value from dataset order by 1").fetchall()
    assert found == [(b"a",), (b"b",), (b"c",)]
    assert dataset.count_rows() == 3
    pandas = log.load().handle.to_pandas()
    assert sorted(pandas["_value"]) == [b"a", b"b", b"c"]


def test_another_open_of_the_table_continues_where_it_ended(topic: MemoryTopic) -> None:
    make_writer(topic, make_table(topic)).round()
    topic.values[0].append(b"new")
    again = open_log(topic)
    assert make_writer(topic, again).round().rows == 1
    assert offsets_of(again) == everything(topic)
