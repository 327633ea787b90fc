"""Kafka's tools that write, read and dump messages, and what they print. `make interop-kafka` runs it."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from support.broker_cluster import BrokerCluster
from support.java_process import JavaProcess
from support.kafka_tools import KafkaTools, main_class
from support.topics import Topics
from support.waiting import wait_until

pytestmark = pytest.mark.skipif(
    "KAFKA_INTEROP" not in os.environ, reason="needs Java and Maven Central: make interop-kafka"
)

QUIET_MS = "5000"


@pytest.fixture
def topic(cluster: BrokerCluster, request: pytest.FixtureRequest) -> str:
    """One partition on all brokers, for one test."""
    name = re.sub(r"[^\w-]", "-", request.node.name).removeprefix("test_")
    Topics(cluster.bootstrap).create(name, replicas=3)
    cluster.wait_until_known(name)
    return name


def write(tools: KafkaTools, topic: str, *messages: str) -> None:
    parse = ("parse.key=true", "key.separator=:", "parse.headers=true")
    options = [word for one in parse for word in ("--reader-property", one)]
    lines = "".join(f"made:here\t{one}\n" for one in messages)
    tools("kafka-console-producer", "--topic", topic, *options, stdin=lines)


def test_the_console_tools_write_and_read(topic: str, tools: KafkaTools) -> None:
    write(tools, topic, "ride-1:requested", "ride-2:requested", "ride-1:finished")
    show = ("key", "partition", "offset", "headers", "timestamp")
    options = [word for one in show for word in ("--formatter-property", f"print.{one}=true")]
    reading = ("--topic", topic, "--from-beginning", "--max-messages", "3")
    lines = tools("kafka-console-consumer", *reading, *options).splitlines()
    fields = [line.split("\t") for line in lines]
    assert all(one[0].startswith("CreateTime:") for one in fields)
    assert [one[1:] for one in fields] == [
        ["Partition:0", "Offset:0", "made:here", "ride-1", "requested"],
        ["Partition:0", "Offset:1", "made:here", "ride-2", "requested"],
        ["Partition:0", "Offset:2", "made:here", "ride-1", "finished"],
    ]
    one = ("--topic", topic, "--partition", "0", "--offset", "2", "--max-messages", "1")
    assert tools("kafka-console-consumer", *one) == "finished\n"
    included = ("--include", f"{topic[:-1]}.", "--from-beginning", "--max-messages", "3")
    committed = ("--isolation-level", "read_committed", "--group", f"of-{topic}")
    assert len(tools("kafka-console-consumer", *included, *committed).splitlines()) == 3
    # The group goes on where it was.
    write(tools, topic, "ride-3:requested")
    further = ("--topic", topic, "--group", f"of-{topic}", "--max-messages", "1")
    assert tools("kafka-console-consumer", *further) == "requested\n"


@pytest.mark.parametrize(
    ("codec", "acks"),
    [
        *((codec, "all") for codec in ("none", "gzip", "snappy", "lz4", "zstd")),
        ("none", "0"),
        ("none", "1"),
    ],
)
def test_the_console_producer_writes_with_each_codec_and_acks(
    topic: str, tools: KafkaTools, codec: str, acks: str
) -> None:
    options = ("--compression-codec", codec, "--request-required-acks", acks)
    lines = [f"{number:0100}" for number in range(20)]
    tools("kafka-console-producer", "--topic", topic, *options, stdin="\n".join(lines))
    reading = ("--topic", topic, "--from-beginning", "--max-messages", "20")
    assert tools("kafka-console-consumer", *reading).splitlines() == lines


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_verifiable_tools_agree_on_what_was_written(
    topic: str, tools: KafkaTools, protocol: str
) -> None:
    written = tools.apart("kafka-verifiable-producer", "--topic", topic, "--max-messages", "500")
    assert written.code == 0, written.everything
    events = [json.loads(line) for line in written.out.splitlines()]
    sent = [one["value"] for one in events if one["name"] == "producer_send_success"]
    assert sorted(map(int, sent)) == list(range(500))
    group = ("--group-id", f"of-{topic}", "--group-protocol", protocol, "--verbose")
    reading = ("--topic", topic, "--max-messages", "500", *group)
    read = tools.apart("kafka-verifiable-consumer", *reading)
    assert read.code == 0, read.everything
    events = [json.loads(line) for line in read.out.splitlines()]
    assert [one["value"] for one in events if one["name"] == "record_data"] == sent
    committed = [one for one in events if one["name"] == "offsets_committed"]
    assert all(one["success"] for one in committed)
    assert committed[-1]["offsets"][0]["offset"] == 500


def test_the_performance_tools_write_and_read_all(topic: str, tools: KafkaTools) -> None:
    load = ("--topic", topic, "--num-records", "20000", "--record-size", "100")
    printed = tools("kafka-producer-perf-test", *load, "--throughput", "-1")
    assert "20000 records sent" in printed
    transactions = ("--transactional-id", f"of-{topic}", "--transaction-duration-ms", "50")
    printed = tools("kafka-producer-perf-test", *load, "--throughput", "-1", *transactions)
    assert "20000 records sent" in printed
    reading = ("--topic", topic, "--num-records", "40000", "--timeout", "20000")
    printed = tools("kafka-consumer-perf-test", *reading)
    header, row = (line.split(", ") for line in printed.splitlines()[:2])
    assert int(row[header.index("data.consumed.in.nMsg")]) == 40_000


@pytest.mark.parametrize("acks", ["1", "all"])
def test_latency_is_measured_from_end_to_end(topic: str, tools: KafkaTools, acks: str) -> None:
    load = ("--topic", topic, "--num-records", "50", "--record-size", "100")
    printed = tools("kafka-e2e-latency", *load, "--producer-acks", acks)
    assert "Avg latency: " in printed
    assert "Percentiles: 50th = " in printed


def test_replicas_are_verified(
    cluster: BrokerCluster, topic: str, tools: KafkaTools, tmp_path: Path
) -> None:
    """The tool never ends."""
    write(tools, topic, *(f"ride-{number}:requested" for number in range(100)))
    options = ("--topics-include", topic, "--time", "-2", "--report-interval-ms", "500")
    arguments = ("--broker-list", cluster.bootstrap, *options)
    tool = main_class("kafka-replica-verification")
    with JavaProcess(tmp_path, "verification", tool, *arguments) as verification:
        well = f"max lag is 0 for partition {topic}-0 at offset 100 among 1 partitions"
        wait_until(lambda: well in verification.said, "the replicas agree", seconds=30)
        assert "checksum" not in verification.said.replace("verification", "")


def files(cluster: BrokerCluster, partition: str, ending: str) -> list[str]:
    """Those of a partition at the first broker that has it."""
    for number in cluster.brokers:
        if found := sorted((cluster.data_of(number) / partition).glob(f"*.{ending}")):
            return list(map(str, found))
    raise AssertionError(f"nobody has *.{ending} of {partition}")


def logs_of(cluster: BrokerCluster, topic: str) -> str:
    """Of an internal topic, at the first broker that has a partition of it. One without records has no folder."""
    found: dict[str, list[str]] = {}
    for number in cluster.brokers:
        for folder in cluster.data_of(number).glob(f"{topic}-*"):
            logs = sorted(str(one) for one in folder.glob("*.log"))
            if logs:
                found.setdefault(folder.name, logs)
    return ",".join(one for logs in found.values() for one in logs)


def dumped(tools: KafkaTools, *arguments: str) -> str:
    printed = tools.run("kafka-dump-log", *arguments)
    assert printed.code == 0, printed.everything
    assert "Mismatches in" not in printed.err, printed.err
    # The tool takes the first offset of a file for a gap.
    gaps = re.findall(r"^  (\d+) is followed by", printed.err, re.MULTILINE)
    assert gaps == [], printed.err
    assert "Exception" not in printed.everything, printed.everything
    return printed.out


def test_files_of_a_partition_are_dumped(cluster: BrokerCluster, tools: KafkaTools) -> None:
    """Indexes of the segment that is written to are longer than what is in them, here as in Kafka."""
    topic = Topics(cluster.bootstrap).new("dumped", replicas=3, segment_bytes=100_000)
    cluster.wait_until_known(topic)
    load = ("--topic", topic, "--num-records", "5000", "--record-size", "100")
    tools("kafka-producer-perf-test", *load, "--throughput", "-1")
    logs = files(cluster, f"{topic}-0", "log")
    assert len(logs) > 1
    printed = dumped(tools, "--files", ",".join(logs), "--print-data-log", "--deep-iteration")
    assert "isvalid: true" in printed
    assert "isvalid: false" not in printed
    assert printed.count("| offset: ") == 5_000
    for ending in ("index", "timeindex"):
        index = ("--files", ",".join(files(cluster, f"{topic}-0", ending)[:-1]))
        assert "Dumping" in dumped(tools, *index)
        assert "Dumping" in dumped(tools, *index, "--verify-index-only")
        assert "passed sanity check" in dumped(tools, *index, "--index-sanity-check")
    snapshots = ",".join(files(cluster, f"{topic}-0", "snapshot"))
    assert "producerId: " in dumped(tools, "--files", snapshots)


def documents(text: str) -> list[dict[str, Any]]:
    """Of JSON, with nothing between one and the next."""
    decoder, found, at = json.JSONDecoder(), [], 0
    while at < len(text.rstrip()):
        one, at = decoder.raw_decode(text, at)
        found.append(one)
    return found


def test_offsets_and_transactions_are_dumped_and_read(
    cluster: BrokerCluster, topic: str, tools: KafkaTools
) -> None:
    """The internal topics, whose records have Kafka's bytes, too."""
    write(tools, topic, "ride-1:requested")
    group = ("--group", f"of-{topic}", "--from-beginning", "--max-messages", "1")
    tools("kafka-console-consumer", "--topic", topic, *group)
    formatter = "org.apache.kafka.tools.consumer.OffsetsMessageFormatter"
    of_offsets = ("--topic", "__consumer_offsets", "--from-beginning", "--formatter", formatter)
    printed = tools.ask("kafka-console-consumer", *of_offsets, "--timeout-ms", QUIET_MS)
    mine = [
        one for one in documents(printed.out) if one["key"]["data"].get("group") == f"of-{topic}"
    ]
    assert mine[-1]["value"]["data"]["offset"] == 1

    logs = logs_of(cluster, "__consumer_offsets")
    printed_log = dumped(tools, "--files", logs, "--offsets-decoder")
    assert f"of-{topic}" in printed_log
    load = ("--topic", topic, "--num-records", "10", "--record-size", "10", "--throughput", "-1")
    tools("kafka-producer-perf-test", *load, "--transactional-id", f"txn-of-{topic}")
    logs = logs_of(cluster, "__transaction_state")
    printed_log = dumped(tools, "--files", logs, "--transaction-log-decoder")
    assert f"txn-of-{topic}" in printed_log
