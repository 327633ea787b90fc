import json
import time
from datetime import UTC, datetime

import pytest

from cli.fake_cluster import FakeCluster
from cli.running import Run
from respool.cli.connection_options import BrokerConnection
from respool.cli.kafka_library import make_producer
from respool.cli.messages.consume import choose_writer, pretty_writer
from respool.cli.messages.message_format import ReadMessage

MESSAGE = ReadMessage(
    topic="t", partition=1, offset=7, timestamp_ms=-1, key=b"k\x1b", value=b"v\xff", headers=()
)


# An idempotent producer may wait half a second for its id.
QUICK = ("--acks", "1")


def fill(run: Run, broker: str, topic: str, count: int) -> None:
    """Partition 0 of a topic that is not there yet."""
    lines = b"".join(b"%d\n" % n for n in range(count))
    assert run("produce", topic, "-b", broker, "-p", "0", *QUICK, stdin=lines).code == 0


@pytest.fixture(scope="module")
def ten_messages(mock_broker: str) -> str:
    """A topic whose partition 0 holds '0' to '9'."""
    producer = make_producer(BrokerConnection(bootstrap=mock_broker))
    for number in range(10):
        producer.produce("ten", b"%d" % number, partition=0)
    assert producer.flush(10) == 0
    return "ten"


def test_piped_values_are_lines_of_their_own_bytes() -> None:
    write = choose_writer(format_text=None, as_json=False, raw=False)
    assert write(MESSAGE) == b"v\xff\n"


def test_raw_adds_nothing() -> None:
    assert choose_writer(format_text=None, as_json=False, raw=True)(MESSAGE) == b"v\xff"


def test_on_a_terminal_a_format_is_written_without_control_characters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("respool.cli.output.is_terminal", lambda: True)
    write = choose_writer(format_text="{key} {value}", as_json=False, raw=False)
    assert write(MESSAGE) == b"k\\x1b v\\xff\n"


def test_for_eyes_place_time_key_and_value_are_shown() -> None:
    assert pretty_writer(colour=False)(MESSAGE) == b"1:7 - k\\x1b v\\xff\n"
    coloured = pretty_writer(colour=True)(MESSAGE)
    assert b"\x1b[36mk\\x1b\x1b[0m" in coloured


def test_reading_ends_at_the_end_seen_at_the_start(run: Run, mock_broker: str) -> None:
    fill(run, mock_broker, "bounded", 300)
    ended = run("consume", "bounded", "-b", mock_broker)
    assert ended.code == 0
    assert ended.out == "".join(f"{n}\n" for n in range(300))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--offset", "7"], ["7", "8", "9"]),
        (["--offset", "-2"], ["8", "9"]),
        (["--offset", "earliest", "--until", "2"], ["0", "1"]),
        (["--offset", "3", "--until", "5"], ["3", "4"]),
        (["--offset", "latest"], []),
        (["--from-beginning", "--max-messages", "1"], ["0"]),
        (["--offset", "2", "-n", "2"], ["2", "3"]),
        (["--until", "0"], []),
    ],
)
def test_a_part_of_a_partition_is_read(
    run: Run, mock_broker: str, ten_messages: str, options: list[str], expected: list[str]
) -> None:
    ended = run("consume", ten_messages, "-b", mock_broker, "-p", "0", *options)
    assert (ended.code, ended.out.split()) == (0, expected)


def test_only_the_partitions_asked_for_are_read(run: Run, mock_broker: str) -> None:
    producer = make_producer(BrokerConnection(bootstrap=mock_broker))
    for partition in range(3):
        for number in range(partition + 1):
            producer.produce("several", b"%d" % number, partition=partition)
    assert producer.flush(10) == 0
    ended = run(
        "consume",
        "several",
        "-b",
        mock_broker,
        "-p",
        "1",
        "-p",
        "2",
        "--format",
        "{partition}:{value}",
    )
    assert sorted(ended.out.split()) == ["1:0", "1:1", "2:0", "2:1", "2:2"]


def test_an_offset_beyond_what_is_there_is_told(run: Run, mock_broker: str) -> None:
    fill(run, mock_broker, "short", 3)
    ended = run("consume", "short", "-b", mock_broker, "--offset", "50", "-p", "0", "-p", "1")
    assert (ended.code, ended.out) == (0, "")
    assert "partition 0 holds offsets 0 to 2; starting at 3" in ended.err
    assert "partition 1 holds no messages" in ended.err


def test_json_lines_tell_everything_about_a_message(run: Run, mock_broker: str) -> None:
    line = {
        "key": "k",
        "value": "v",
        "headers": [["h", "1"]],
        "timestamp": 1_763_107_200_123,
        "partition": 2,
    }
    options = ("--json-lines", "--keep-partition")
    run("produce", "told", "-b", mock_broker, *options, stdin=json.dumps(line).encode())
    ended = run("consume", "told", "-b", mock_broker, "--json")
    assert json.loads(ended.out) == {"topic": "told", "offset": 0, **line}


def test_a_format_shows_the_timestamp_with_its_zone(run: Run, mock_broker: str) -> None:
    line = {"value": "v", "timestamp": 1_763_107_200_123}
    run("produce", "timed", "-b", mock_broker, "--json-lines", stdin=json.dumps(line).encode())
    ended = run("consume", "timed", "-b", mock_broker, "--format", "{timestamp}")
    shown = datetime.fromisoformat(ended.out.strip())
    assert shown == datetime(2025, 11, 14, 8, 0, 0, 123_000, tzinfo=UTC)


def test_following_until_a_time_that_has_passed_reads_what_is_there_and_ends(
    run: Run, mock_broker: str
) -> None:
    fill(run, mock_broker, "followed", 5)
    until = f"@{int(time.time() * 1000) + 1}"
    ended = run(
        "consume", "followed", "-b", mock_broker, "--follow", "--from-beginning", "--until", until
    )
    assert (ended.code, ended.out.split()) == (0, ["0", "1", "2", "3", "4"])


def test_a_topic_that_is_not_there_is_not_found_and_one_spelled_alike_is_named(
    run: Run, mock_broker: str
) -> None:
    fill(run, mock_broker, "measurements", 1)
    ended = run("consume", "measurments", "-b", mock_broker)
    assert ended.code == 3
    assert "did you mean measurements?" in ended.err


def test_a_partition_that_is_not_there_is_not_found(run: Run, mock_broker: str) -> None:
    fill(run, mock_broker, "four", 1)
    ended = run("consume", "four", "-b", mock_broker, "-p", "4")
    assert ended.code == 3
    assert "its partitions are 0 to 3" in ended.err


def test_an_offline_partition_names_the_brokers_that_have_it_and_are_not_there(
    run: Run, fake_cluster: FakeCluster
) -> None:
    fake_cluster.add("rides", (0, 1), None)
    broken = run("consume", "rides")
    assert broken.code == 1
    assert "partition 1 of rides is offline: it has no leader\n" in broken.err
    assert "respool log verify DATA" in broken.err
    fake_cluster.up = {1}
    away = run("consume", "rides")
    assert away.code == 1
    assert "replicas on absent brokers: 2\n" in away.err
    assert "respool cluster status" in away.err
    assert "log verify" not in away.err


@pytest.mark.parametrize(
    "options",
    [
        ["--json", "--raw"],
        ["--json", "--format", "{value}"],
        ["--format", "{nope}"],
        ["--offset", "x"],
        ["--since", "soon"],
        ["--until", "later"],
        ["--since", "1h", "--offset", "3"],
        ["--partition", "-1"],
        ["--max-messages", "0"],
    ],
)
def test_wrong_options_are_told_before_anyone_is_asked(run: Run, options: list[str]) -> None:
    # Nobody listens at port 1: had it tried to connect, the code would be 4.
    ended = run("consume", "t", "-b", "127.0.0.1:1", *options)
    assert ended.code == 2
    assert ended.out == ""
