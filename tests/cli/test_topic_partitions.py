"""`respool topic shrink` and `retire` on a broker."""

import json
from collections.abc import Iterator

import pytest

from cli.running import Run
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
