"""`respool status`: one screen about a broker or a cluster, and an exit code that says whether all is well."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from cli.running import Run
from respool.cli import output
from respool.cli.exit_codes import ExitCode
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.metadata import PartitionLeader, TopicMetadata
from respool.operate import cluster_survey
from respool.operate.cluster_survey import Gap, GapReason, Survey
from respool.testing import Broker
from support.quick_broker import quick_broker

MESSAGES = 5


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A topic with messages, a group that has read some of them, and an open transaction."""
    with quick_broker(
        {"offsets_topic_partitions": 1, "transactions_topic_partitions": 1}
    ) as broker:
        broker.create_topic("rides", partitions=2)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "billing"})
        producer.init_transactions()
        producer.begin_transaction()
        for _ in range(MESSAGES):
            producer.produce("rides", b"one", partition=0)
        producer.flush()
        reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "pricing"})
        reader.commit(offsets=[TopicPartition("rides", 0, 2)], asynchronous=False)
        reader.close()
        yield broker
        producer.abort_transaction()


def test_one_screen_tells_of_brokers_partitions_disk_groups_and_transactions(
    run: Run, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    ended = run("status", "--bootstrap", broker.bootstrap)
    assert ended.code == ExitCode.OK
    first, *_ = ended.out.splitlines()
    assert first.startswith("cluster ")
    assert first.endswith(f" at {broker.bootstrap}: healthy")
    words = ended.out.split()
    for word in ("address", "rack", "usable", "pricing", "Empty"):
        assert word in words
    assert "controller: 1" in ended.out
    assert "1 group: 1 Empty" in ended.out
    assert "1 open transaction\n" in ended.out


def test_lines_for_programs_begin_with_what_they_are_about(run: Run, broker: Broker) -> None:
    ended = run("status", "--broker", broker.bootstrap)
    lines = [line.split("\t") for line in ended.out.splitlines()]
    assert [line[0] for line in lines] == ["cluster", "broker", "log_dir", "group"]
    assert lines[3] == ["group", "pricing", "Empty", "classic", str(MESSAGES - 2)]
    assert ended.err == ""


def test_json_has_everything(run: Run, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESPOOL_BROKER", broker.bootstrap)
    document = json.loads(run("status", "--json").out)
    assert document["is_well"] is True
    assert document["unknown"] == []
    (one,) = document["brokers"]
    assert (one["address"], one["state"]) == (broker.bootstrap, "up")
    assert one["replica_count"] == one["leads"] == document["partition_count"]
    assert 0 < one["bytes"] == document["bytes"] == one["log_dirs"][0]["bytes"]
    assert document["groups"] == [
        {"group": "pricing", "state": "Empty", "type": "classic", "lag": MESSAGES - 2}
    ]
    assert document["open_transaction_count"] == 1
    assert document["long_open_transaction_count"] == 0


@pytest.fixture
def unhealthy(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a partition had no leader, and a broker had not said how large its logs are."""
    ask = cluster_survey.survey

    def survey(*arguments: object, **named: object) -> Survey:
        found = ask(*arguments, **named)  # type: ignore[arg-type]
        rides = found.topics["rides"]
        assert isinstance(rides, TopicMetadata)
        leaders = {0: None, 1: PartitionLeader(broker=1, epoch=0)}
        found.topics = {**found.topics, "rides": replace(rides, leaders=leaders)}
        found.gaps = [
            Gap(subject="log_dirs", broker=1, reason=GapReason.TIMEOUT, message="no answer in time")
        ]
        return found

    monkeypatch.setattr(cluster_survey, "survey", survey)


@pytest.mark.usefixtures("unhealthy")
def test_a_problem_ends_with_1_and_what_is_unknown_is_said(
    run: Run, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = ("--broker", broker.bootstrap)
    ended = run("status", *address)
    assert ended.code == ExitCode.FAILED
    assert "offline\trides\t0\t\t1\t1\n" in ended.out
    assert ended.err == "unknown: log dirs of broker 1 (timeout): no answer in time\n"
    ended = run("status", *address, "--json")
    assert ended.code == ExitCode.FAILED
    assert json.loads(ended.out)["is_well"] is False
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    ended = run("status", *address)
    assert ": 1 partition offline\n" in ended.out
    assert "no leader" in ended.out


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the time had been up before the groups were listed."""
    ask = cluster_survey.survey

    def survey(*arguments: object, **named: object) -> Survey:
        found = ask(*arguments, **named)  # type: ignore[arg-type]
        found.groups = None
        found.gaps = [Gap(subject="groups", reason=GapReason.TIMEOUT, message="no answer in time")]
        return found

    monkeypatch.setattr(cluster_survey, "survey", survey)


@pytest.mark.usefixtures("late")
def test_what_there_was_no_time_for_is_unknown_and_no_problem(
    run: Run, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = ("--broker", broker.bootstrap)
    ended = run("status", *address)
    assert (ended.code, ended.err) == (
        ExitCode.OK,
        "unknown: groups (timeout): no answer in time\n",
    )
    cluster, *_ = (line.split("\t") for line in ended.out.splitlines())
    assert cluster[-3] == ""
    assert json.loads(run("status", *address, "--json").out)["groups"] is None
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    text = " ".join(run("status", *address).out.split())
    assert ": healthy, but not everything was learned in time (groups)" in text
    assert "an unknown number of groups" in text


def test_the_time_limit_includes_the_first_contact_and_a_client_config_cannot_extend_it(
    run: Run, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("request.timeout.ms=60000\nsocket.connection.setup.timeout.ms=1500\n")
    ask = cluster_survey.survey
    seen: list[tuple[int, float]] = []

    def survey(cluster: Cluster, *, seconds: float) -> Survey:
        assert not cluster.brokers, "a broker was contacted before the alarm was set"
        seen.append((cluster.request_timeout_ms, seconds))
        return ask(cluster, seconds=seconds)

    monkeypatch.setattr(cluster_survey, "survey", survey)
    address = ("--broker", broker.bootstrap, "--client-config", str(file))
    assert run("status", *address, "--timeout", "20s").code == ExitCode.OK
    assert seen == [(10_000, 20)]


def test_no_broker_ends_with_4(run: Run) -> None:
    ended = run("status", "--broker", "127.0.0.1:1")
    assert ended.code == ExitCode.UNREACHABLE
    assert "127.0.0.1:1" in ended.err


@pytest.mark.parametrize(
    "wrong", [("--timeout", "soon"), ("--timeout", "0s"), ("--broker", "nowhere"), ("rides",)]
)
def test_a_wrong_command_line_ends_with_2(run: Run, wrong: tuple[str, ...]) -> None:
    assert run("status", *wrong).code == ExitCode.USAGE
