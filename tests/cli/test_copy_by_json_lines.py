"""`consume --json | produce --json-lines`, between topics of different sizes."""

import json
from collections.abc import Iterator

import pytest

from cli.running import Run
from respool.replay.copy_plan import murmur2
from respool.testing import Broker

KEYS = [f"ride-{number}" for number in range(9)]
TARGET_PARTITIONS = 2


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(topics={"wide": 6, "narrow": TARGET_PARTITIONS, "kept": 2, "old": 2}) as broker:
        yield broker


@pytest.fixture
def lines(run: Run, broker: Broker) -> bytes:
    """What `consume --json` prints of a topic with six partitions, all of them in use."""
    if not run("consume", "wide", "--broker", broker.bootstrap).out:
        given = "".join(f"{key}:{n}\n" for n in range(3) for key in KEYS).encode()
        to_all = ("--key-separator", ":", "--broker", broker.bootstrap)
        assert run("produce", "wide", *to_all, stdin=given).code == 0
        for partition in range(6):
            spread = ("--partition", str(partition), "-m", f"in {partition}", "-k", "spread")
            assert run("produce", "wide", *spread, "--broker", broker.bootstrap).code == 0
    ended = run("consume", "wide", "--json", "--broker", broker.bootstrap)
    assert {json.loads(line)["partition"] for line in ended.out.splitlines()} == set(range(6))
    return ended.out.encode()


def test_a_copy_to_fewer_partitions_has_every_message_placed_by_its_key(
    run: Run, broker: Broker, lines: bytes
) -> None:
    ended = run("produce", "narrow", "--json-lines", "--broker", broker.bootstrap, stdin=lines)
    assert ended.code == 0, ended.err
    copied = run("consume", "narrow", "--json", "--broker", broker.bootstrap).out.splitlines()
    assert len(copied) == len(lines.splitlines())
    for message in map(json.loads, copied):
        expected = (murmur2(message["key"].encode()) & 0x7FFFFFFF) % TARGET_PARTITIONS
        assert message["partition"] == expected


def test_repartition_is_still_accepted(run: Run, broker: Broker, lines: bytes) -> None:
    as_before = ("--json-lines", "--repartition", "--broker", broker.bootstrap)
    assert run("produce", "old", *as_before, stdin=lines).code == 0


def test_a_kept_partition_that_the_target_lacks_is_refused_with_a_way_out(
    run: Run, broker: Broker, lines: bytes
) -> None:
    kept = ("--json-lines", "--keep-partition", "--broker", broker.bootstrap)
    ended = run("produce", "kept", *kept, stdin=lines)
    assert ended.code == 1
    assert "kept has fewer partitions than that" in ended.err
    assert "without --keep-partition" in ended.err
    copied = run("consume", "kept", "--json", "--broker", broker.bootstrap).out.splitlines()
    found = {json.loads(line)["partition"] for line in copied}
    assert found == {0, 1}
