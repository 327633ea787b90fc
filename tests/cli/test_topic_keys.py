"""`respool topic describe --keys` on a broker whose topic was written by clients with different partitioners."""

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

import respool
from cli.running import Run
from respool.cli.connection_options import BrokerConnection
from respool.cli.exit_codes import ExitCode
from respool.cli.messages.newest_messages import StoppedBy, parse_scan
from respool.cli.topic_keys import in_words, scan_keys
from respool.testing import Broker

KEYS = [f"ride-{number}" for number in range(9)]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(topics={"mixed": 3, "alike": 3, "empty": 2}) as broker:
        for name, partitioner in (("mixed", "consistent_random"), ("alike", "murmur2_random")):
            producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": partitioner})
            for key in KEYS:
                producer.produce(name, key=key, value="by librdkafka")
            assert producer.flush(30) == 0
            with respool.Producer(broker.bootstrap, delivery="at-least-once") as own:
                for key in KEYS:
                    own.send(name, "by Respool", key=key)
        yield broker


def described(run: Run, broker: Broker, *arguments: str) -> Any:
    ended = run("topic", "describe", *arguments, "--json", "--broker", broker.bootstrap)
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def test_keys_that_two_partitioners_placed_are_listed_with_their_partitions(
    run: Run, broker: Broker
) -> None:
    places = defaultdict(set)
    for row in respool.read_table("mixed", bootstrap=broker.bootstrap).to_pylist():
        places[row["key"].decode()].add(row["partition"])
    split = {key: sorted(found) for key, found in places.items() if len(found) > 1}
    assert split, "the two partitioners must differ for some of the keys"
    ended = run("topic", "describe", "mixed", "--keys", "--json", "--broker", broker.bootstrap)
    (topic,) = json.loads(ended.out)["topics"]
    found = topic["key_scan"]
    assert {one["key"]: one["partitions"] for one in found["split_keys"]} == split
    assert found["split_key_count"] == len(split)
    assert (found["messages_scanned"], found["messages_available"], found["key_count"]) == (
        18,
        18,
        9,
    )
    assert "set partitioner=murmur2_random" in ended.err


def test_clients_that_place_keys_alike_split_none(run: Run, broker: Broker) -> None:
    for topic in described(run, broker, "alike", "empty", "--keys")["topics"]:
        assert topic["key_scan"]["split_keys"] == []
        assert topic["key_scan"]["key_count"] == (9 if topic["topic"] == "alike" else 0)


def test_every_client_of_respool_and_produce_places_a_key_as_java_does(
    run: Run, broker: Broker
) -> None:
    name = broker.create_topic("by-all", partitions=3)
    with respool.Producer(broker.bootstrap, delivery="at-least-once") as own:
        for key in KEYS:
            own.send("by-all", "x", key=key)
    table = pa.table({"key": KEYS, "value": ["x"] * len(KEYS)})
    respool.write_table(table, "by-all", bootstrap=broker.bootstrap)
    lines = "".join(f"{key}:x\n" for key in KEYS).encode()
    run("produce", "by-all", "--key-separator", ":", "--broker", broker.bootstrap, stdin=lines)
    (topic,) = described(run, broker, "by-all", "--keys")["topics"]
    assert (topic["key_scan"]["messages_scanned"], topic["key_scan"]["split_keys"]) == (27, []), (
        name
    )


def test_only_as_many_messages_as_asked_for_are_scanned_and_that_is_told(
    run: Run, broker: Broker
) -> None:
    (topic,) = described(run, broker, "mixed", "--keys", "--scan", "6")["topics"]
    found = topic["key_scan"]
    assert (found["messages_scanned"], found["messages_available"]) == (6, 18)
    ends = {one["partition"]: one["end_offset"] for one in topic["partitions"]}
    assert {one["partition"]: one["end_offset"] for one in found["scanned"]} == ends
    assert sum(one["end_offset"] - one["start_offset"] for one in found["scanned"]) == 6
    (topic,) = described(run, broker, "mixed", "--keys", "--since", "now")["topics"]
    assert topic["key_scan"]["messages_scanned"] == 0
    (topic,) = described(run, broker, "mixed", "--keys", "--since", "1h", "--scan", "all")["topics"]
    assert topic["key_scan"]["messages_scanned"] == 18


def test_a_scan_whose_time_is_up_reports_what_it_read(broker: Broker) -> None:
    wanted = parse_scan("all", None, "5s")
    moments = iter([0.0, 5.0])
    with BrokerConnection(bootstrap=broker.bootstrap).connect() as cluster:
        report = scan_keys(cluster, cluster.topic("mixed"), wanted, clock=lambda: next(moments))
    assert (report.scanned.stopped_by, report.scanned.is_sample) == (StoppedBy.TIME, True)
    assert report.document()["messages_scanned"] == 0
    assert "(the time was up; see --scan-time)" in in_words(report)


def test_a_whole_scan_is_no_sample_though_transaction_markers_are_no_messages(
    run: Run, broker: Broker
) -> None:
    broker.create_topic("marked", partitions=1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "marker"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("marked", key="a", value="x")
    producer.commit_transaction(30)
    (topic,) = described(run, broker, "marked", "--keys")["topics"]
    found = topic["key_scan"]
    assert (found["messages_scanned"], found["messages_available"]) == (1, 2)
    assert (found["is_sample"], found["stopped_by"]) == (False, None)


def test_piped_the_keys_are_lines_of_their_own(run: Run, broker: Broker) -> None:
    ended = run("topic", "describe", "mixed", "--keys", "--broker", broker.bootstrap)
    rows = [line.split("\t") for line in ended.out.splitlines()]
    (counts,) = [row for row in rows if row[1] == "keys"]
    keys = [row for row in rows if row[1] == "key"]
    assert counts == ["mixed", "keys", "18", "18", "9", str(len(keys))]
    assert all(len(row) == 6 and "," in row[3] for row in keys)


def test_for_eyes_what_was_scanned_is_a_sentence(
    run: Run, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("respool.cli.output.is_terminal", lambda: True)
    ended = run("topic", "describe", "mixed", "--keys", "--scan", "6", "--broker", broker.bootstrap)
    assert "keys: scanned the newest 6 of 18 messages; " in ended.out


@pytest.mark.parametrize(
    "options",
    [
        ["--scan", "5"],
        ["--since", "1h"],
        ["--scan-time", "5s"],
        ["--keys", "--scan-time", "0s"],
        ["--keys", "--scan", "0"],
        ["--keys", "--scan", "x"],
    ],
)
def test_what_cannot_be_scanned_is_a_usage_error(run: Run, options: list[str]) -> None:
    ended = run("topic", "describe", "t", *options, "--broker", "127.0.0.1:1")
    assert ended.code == ExitCode.USAGE


def test_confluent_kafka_examples_place_keys_as_the_other_clients() -> None:
    """Each `Producer({...})` of confluent-kafka in the pages and the examples."""
    root = Path(__file__).resolve().parents[2]
    pages = [root / "README.md", *(root / "docs").rglob("*.md")]
    programs = [*(root / "examples").rglob("*.py"), *(root / "demo").glob("*.py")]
    for path in (*pages, *programs):
        _, *calls = path.read_text().split(" Producer(")
        for call in calls:
            if "import" not in call[:10] and call.lstrip().startswith(("{", "BROKER")):
                arguments = call[: call.index(")\n")]
                assert '"partitioner": "murmur2_random"' in arguments, f"{path}: {arguments}"
