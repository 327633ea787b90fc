import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

import respool
from cli.running import Run
from respool.cli.exit_codes import ExitCode
from respool.cli.interrupts import CtrlC
from respool.cli.pipelines import rides_run
from respool.client.arrow.writing.arrow_producer import ArrowProducer
from respool.rides.ride_plan import DAY_MS, HOUR_MS
from respool.testing import Broker

FIXED = ("--seed", "7", "--until", "2026-11-12T08:00Z")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def test_what_is_written_is_what_a_dry_run_counts(run: Run, broker: Broker, tmp_path: Path) -> None:
    recent = ("--seed", "7", "--count", "3000", "--fraud-share", "0.1", "--malformed-share", "0.05")
    truth = tmp_path / "truth.parquet"
    # The broker deletes what is too old by its clock: the history ends an hour ago.
    until = ("--until", f"@{int(time.time()) - 3600}")
    counted = run("rides", "generate", *recent, *until, "--dry-run", "--json")
    written = run(
        "rides",
        "generate",
        *recent,
        *until,
        *("--topic", "written", "--partitions", "3", "--compression", "zstd", "--json"),
        *("--truth", str(truth), "--bootstrap", broker.bootstrap),
    )
    assert (counted.code, written.code) == (0, 0), written.err
    assert "created written" in written.err
    summary = json.loads(written.out)
    assert summary == {**json.loads(counted.out), "topic": "written"}
    table = respool.read_table("written", bootstrap=broker.bootstrap)
    assert table.num_rows == summary["events"] == 3000
    assert set(table["partition"].to_pylist()) == {0, 1, 2}
    types = Counter(dict(one)["event_type"].decode() for one in map(_pairs, table["headers"]))
    assert types == {name: number for name, number in summary["types"].items() if number}
    known = parquet.read_table(truth).to_pylist()
    patterns = Counter(row["pattern"] for row in known if row["kind"] == "fraud")
    assert patterns == {name: number for name, number in summary["fraud"].items() if number}
    assert sum(row["kind"] == "malformed" for row in known) == sum(summary["malformed"].values())


def test_the_client_id_and_timeouts_of_a_file_apply_to_what_is_written(
    run: Run, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[dict[str, Any]] = []

    class Recorded(ArrowProducer):
        def __init__(self, *addresses: Any, **settings: Any) -> None:
            made.append(settings)
            super().__init__(*addresses, **settings)

    monkeypatch.setattr(rides_run, "ArrowProducer", Recorded)
    file = tmp_path / "client.properties"
    file.write_text(
        f"bootstrap.servers={broker.bootstrap}\nclient.id=night-job\nrequest.timeout.ms=61000\n"
        "socket.connection.setup.timeout.ms=7000\ndefault.api.timeout.ms=90000\n"
    )
    ended = run(
        *("rides", "generate", "--count", "100", "--topic", "by-file"),
        *("--client-config", str(file)),
    )
    assert ended.code == 0, ended.err
    assert {name: value for name, value in made[0].items() if name.endswith(("_ms", "_id"))} == {
        "client_id": "night-job",
        "request_timeout_ms": 61_000,
        "connect_timeout_ms": 7_000,
        "delivery_timeout_ms": 90_000,
    }


def _pairs(headers: Any) -> list[tuple[str, bytes]]:
    return [(one["key"], one["value"]) for one in headers.as_py()]


def test_events_of_a_ride_are_in_one_partition_and_in_order(run: Run, broker: Broker) -> None:
    ended = run(
        *("rides", "generate", "--count", "2000", "--topic", "ordered", "--partitions", "4"),
        *("--duplicate-share", "0", "--malformed-share", "0", "--broker", broker.bootstrap),
    )
    assert ended.code == 0, ended.err
    rides: dict[bytes, list[tuple[int, str]]] = {}
    table = respool.read_table("ordered", bootstrap=broker.bootstrap)
    for row in table.to_pylist():
        event = json.loads(row["value"])
        assert row["key"].decode() == event["ride_id"]
        rides.setdefault(row["key"], []).append((row["partition"], event["event_time"]))
    assert len(rides) > 200
    for events in rides.values():
        assert len({partition for partition, _ in events}) == 1
        assert [when for _, when in events] == sorted(when for _, when in events)


def test_live_goes_on_from_now(run: Run, broker: Broker) -> None:
    began_ms = int(time.time() * 1000)
    ended = run(
        *("rides", "generate", "--days", "0.05", "--rate", "20", "--live", "--for", "1s"),
        *("--topic", "live", "--broker", broker.bootstrap, "--json"),
    )
    assert ended.code == 0, ended.err
    assert "continuing live" in ended.err
    times = respool.read_table("live", bootstrap=broker.bootstrap)["timestamp"].cast("int64")
    assert len(times) == json.loads(ended.out)["events"]
    newest = max(times.to_pylist())
    assert began_ms < newest <= int(time.time() * 1000)
    assert min(times.to_pylist()) >= began_ms - 2 * HOUR_MS


def test_printed_lines_are_what_produce_reads(run: Run, broker: Broker) -> None:
    printed = run("rides", "generate", *FIXED, "--malformed-share", "0.3", "--print", "50")
    assert printed.code == 0
    lines = printed.out.splitlines()
    assert len(lines) == 50
    broker.create_topic("printed", retention_ms=-1)
    sent = run(
        *("produce", "printed", "--json-lines", "--broker", broker.bootstrap),
        stdin=printed.out.encode(),
    )
    assert sent.code == 0, sent.err
    table = respool.read_table("printed", bootstrap=broker.bootstrap)
    # An empty value is one.
    expected = sorted(json.loads(line)["value"].encode() for line in lines)
    assert sorted(table["value"].to_pylist()) == expected
    assert run("rides", "generate", *FIXED, "--malformed-share", "0.3", "--print", "50") == printed


def test_the_summary_is_a_table_of_what_was_made(run: Run) -> None:
    ended = run("rides", "generate", *FIXED, "--count", "500", "--dry-run")
    rows = [line.split("\t") for line in ended.out.splitlines()]
    assert sum(int(number) for what, _, number in rows if what == "events") == 500
    assert {what for what, _, _ in rows} == {
        "events",
        "malformed",
        "fraudulent rides",
        "late",
        "sent again",
    }
    assert "500 events of" in ended.err
    assert "none written" in ended.err


def test_a_topic_for_a_long_history_keeps_it(run: Run, broker: Broker) -> None:
    ended = run(
        *("rides", "generate", "--count", "200", "--days", "20", "--topic", "long"),
        *("--broker", broker.bootstrap),
    )
    assert ended.code == 0, ended.err
    described = run("topic", "describe", "long", "--json", "--broker", broker.bootstrap)
    assert f"{27 * DAY_MS}" in described.out


def test_a_topic_that_keeps_too_little_is_warned_of(run: Run, broker: Broker) -> None:
    broker.create_topic("short", retention_ms=HOUR_MS)
    ended = run(
        *("rides", "generate", "--count", "200", "--topic", "short", "--broker", broker.bootstrap)
    )
    assert ended.code == 0
    assert "short keeps messages for 0.0416667 days" in ended.err


def test_ctrl_c_ends_it_after_what_was_begun(
    run: Run, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from respool.cli.pipelines import rides_run

    @contextmanager
    def pressed() -> Iterator[CtrlC]:
        noticed = CtrlC()
        noticed.pressed = True
        yield noticed

    monkeypatch.setattr(rides_run, "noticing_ctrl_c", pressed)
    ended = run(
        *("rides", "generate", "--rate", "2", "--topic", "cut", "--broker", broker.bootstrap),
        "--json",
    )
    assert ended.code == ExitCode.INTERRUPTED
    written = json.loads(ended.out)["events"]
    assert 0 < written < 2 * 86_400
    assert respool.read_table("cut", bootstrap=broker.bootstrap).num_rows == written


def test_a_broker_that_refuses_is_told_of_in_its_words(run: Run, broker: Broker) -> None:
    broker.create_topic("picky", message_timestamp_before_max_ms=1_000)
    ended = run(
        *("rides", "generate", "--count", "100", "--topic", "picky", "--broker", broker.bootstrap)
    )
    assert ended.code == ExitCode.FAILED
    assert "0 events are in, 100 are not" in ended.err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--rate", "5", "--count", "5"), ExitCode.USAGE, "--rate and --count"),
        (("--rate", "many"), ExitCode.USAGE, "'many' is not a rate"),
        (("--until", "tomorrow"), ExitCode.USAGE, "--until: 'tomorrow' is not a time"),
        (("--cities", "Atlantis"), ExitCode.USAGE, "there is no city 'atlantis'"),
        (("--drivers", "3"), ExitCode.USAGE, "3 drivers: each of 12 cities needs one"),
        (("--days", "0.01"), ExitCode.USAGE, "a history of 0.01 days: it is an hour"),
        (("--days", "nan"), ExitCode.USAGE, "--days nan: it is an hour (0.042) to 366 days"),
        (("--days", "-1"), ExitCode.USAGE, "--days -1"),
        (("--late-share", "nan"), ExitCode.USAGE, "--late-share"),
        (("--late-share", "0.9"), ExitCode.USAGE, "--late-share"),
        (("--for", "1s"), ExitCode.USAGE, "--for needs --live"),
        (("--live", "--for", "soon"), ExitCode.USAGE, "--for: 'soon' is not a length of time"),
        (("--live", "--count", "5"), ExitCode.USAGE, "--live cannot be combined with --count"),
        (
            ("--live", "--until", "yesterday"),
            ExitCode.USAGE,
            "--live cannot be combined with --until",
        ),
        (("--live", "--dry-run"), ExitCode.USAGE, "--live cannot be combined with --dry-run"),
        (("--truth", "no/such/place.parquet"), ExitCode.NOT_FOUND, "there is no folder"),
        (("--broker", "127.0.0.1:1"), ExitCode.UNREACHABLE, "no broker at 127.0.0.1:1"),
    ],
)
def test_what_cannot_be_is_refused_in_words(
    run: Run, arguments: tuple[str, ...], code: ExitCode, words: str
) -> None:
    ended = run("rides", "generate", *arguments)
    assert ended.code == code
    assert words in ended.err
    assert "Traceback" not in ended.err


def test_another_number_of_partitions_is_refused(run: Run, broker: Broker) -> None:
    broker.create_topic("two", partitions=2)
    ended = run(
        *("rides", "generate", "--count", "10", "--topic", "two", "--partitions", "6"),
        *("--broker", broker.bootstrap),
    )
    assert ended.code == ExitCode.USAGE
    assert "two has 2 partitions already, not 6" in ended.err


def test_without_its_libraries_it_says_what_to_install(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "respool.rides.records", None)
    ended = run("rides", "generate", "--print", "1")
    assert ended.code == ExitCode.FAILED
    assert 'pip install ".[arrow,client]"' in ended.err
