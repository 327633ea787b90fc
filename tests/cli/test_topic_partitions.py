"""`respool topic shrink`, `retire`, `describe` and `alter` of topics that were shrunk, on a broker."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cli.running import Run
from respool.cli import output
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.groups import OffsetAndMetadata, commit_offsets
from respool.testing import Broker
from support.quick_broker import quick_broker


@pytest.fixture
def broker() -> Iterator[Broker]:
    with quick_broker() as running:
        running.create_topic("rides", partitions=4)
        yield running


def test_a_topic_is_shrunk_and_its_sealed_partitions_are_retired(run: Run, broker: Broker) -> None:
    at = ("--broker", broker.bootstrap)
    tried = run("topic", "shrink", "rides", "--to", "2", "--dry-run", *at)
    assert (tried.code, tried.err) == (0, "rides could be shrunk to 2\n")
    shrunk = run("topic", "shrink", "rides", "--to", "2", "--yes", "--json", *at)
    assert json.loads(shrunk.out) == {"topic": "rides", "active_partitions": 2, "changed": True}
    assert run("produce", "rides", "-m", "x", "--partition", "3", *at).code == 0
    retired = run("topic", "retire", "rides", "--yes", *at)
    assert (retired.code, retired.err) == (0, "the sealed partitions of rides are retired\n")
    described = run("topic", "describe", "rides", "--json", *at)
    assert len(json.loads(described.out)["topics"][0]["partitions"]) == 2


@pytest.mark.parametrize("to", ["0", "3", "4", "9"])
def test_a_number_that_will_not_do_is_refused_and_says_which_would(
    run: Run, broker: Broker, to: str
) -> None:
    refused = run("topic", "shrink", "rides", "--to", to, "--yes", "--broker", broker.bootstrap)
    assert refused.code == 2
    assert "at most 3" in refused.err or "2, 1" in refused.err


def test_messages_keep_sealed_partitions_from_being_retired(run: Run, broker: Broker) -> None:
    at = ("--broker", broker.bootstrap)
    assert run("produce", "rides", "-m", "x", "--partition", "3", *at).code == 0
    assert run("topic", "shrink", "rides", "--to", "2", "--yes", *at).code == 0
    refused = run("topic", "retire", "rides", "--yes", *at)
    assert refused.code == 1
    assert "3 (1 offsets)" in refused.err
    assert run("topic", "retire", "rides", "--force", "--yes", *at).code == 0


def described(run: Run, broker: Broker) -> dict[str, Any]:
    ended = run("topic", "describe", "rides", "--json", "--broker", broker.bootstrap)
    assert ended.code == 0, ended.err
    (topic,) = json.loads(ended.out)["topics"]
    assert isinstance(topic, dict)
    return topic


def test_describe_shows_what_is_left_in_sealed_partitions_and_who_has_still_to_read_it(
    run: Run, broker: Broker
) -> None:
    at = ("--broker", broker.bootstrap)
    for number in ("2", "3", "3"):
        assert run("produce", "rides", "-m", "x", "--partition", number, *at).code == 0
    assert described(run, broker)["layout"] is None
    with Cluster(broker.bootstrap) as cluster:
        commit_offsets(cluster, "billing", {("rides", 2): OffsetAndMetadata(1)})
        commit_offsets(cluster, "audit", {("rides", one): OffsetAndMetadata(9) for one in range(4)})
    assert run("topic", "shrink", "rides", "--to", "2", "--yes", *at).code == 0
    layout = described(run, broker)["layout"]
    assert (layout["active_partitions"], layout["groups_unknown"]) == (2, None)
    second, third = layout["sealed"]
    assert second.pop("bytes") > 0
    assert third.pop("bytes") > 0
    assert second == {
        "partition": 2, "heir": 0, "sealed_end": 1, "messages": 1, "groups_behind": []
    }  # fmt: skip
    assert third == {
        "partition": 3, "heir": 1, "sealed_end": 2, "messages": 2, "groups_behind": ["billing"]
    }  # fmt: skip
    lines = run("topic", "describe", "rides", *at).out.splitlines()
    (line,) = [one for one in lines if one.startswith("rides\tsealed\t3\t")]
    assert line.split("\t")[3:6] == ["1", "2", "2"]
    assert line.endswith("\tbilling")


def test_people_are_shown_which_partitions_are_sealed(
    run: Run, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = ("--broker", broker.bootstrap)
    assert run("topic", "shrink", "rides", "--to", "2", "--yes", *at).code == 0
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    shown = run("topic", "describe", "rides", *at).out
    assert "messages go to partitions 0 to 1; these are sealed:" in shown


def test_alter_lets_sealed_partitions_take_messages_again(run: Run, broker: Broker) -> None:
    at = ("--broker", broker.bootstrap)
    assert run("topic", "shrink", "rides", "--to", "1", "--yes", *at).code == 0
    assert run("topic", "alter", "rides", "--partitions", "1", *at).code == 0
    assert described(run, broker)["layout"]["active_partitions"] == 1
    assert run("topic", "alter", "rides", "--partitions", "2", *at).code == 0
    assert described(run, broker)["layout"]["active_partitions"] == 2
    refused = run("topic", "alter", "rides", "--partitions", "1", *at)
    assert refused.code == 2
    assert "respool topic shrink rides --to 1" in refused.err
    assert run("topic", "alter", "rides", "--partitions", "6", *at).code == 0
    topic = described(run, broker)
    assert (topic["layout"]["active_partitions"], topic["layout"]["sealed"]) == (6, [])
    assert len(topic["partitions"]) == 6
