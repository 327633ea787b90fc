"""DescribeLogDirs, in every version."""

from typing import Any

import pytest

from broker.cluster_world import TOPIC, TWO, Cluster, plays
from broker.running_broker import RunningBroker, StartBroker
from broker.wire_client import versions
from respool.model.errors import DiskFailed
from respool.wire.api_table import Api

STORAGE_ERROR = 56

every_version = pytest.mark.parametrize("version", versions(Api.DESCRIBE_LOG_DIRS))


def ask(broker: RunningBroker, version: int, topics: dict[str, list[int]] | None) -> Any:
    wanted = topics and [{"topic": name, "partitions": parts} for name, parts in topics.items()]
    if topics == {}:
        wanted = []
    reply = broker.ask(Api.DESCRIBE_LOG_DIRS, version, topics=wanted)
    assert getattr(reply, "error_code", 0) == 0
    (folder,) = reply.results
    assert folder.error_code == 0
    return folder


def sizes(folder: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.name, one.partition_index): one.partition_size
        for topic in folder.topics
        for one in topic.partitions
    }


@every_version
def test_every_partition_has_its_size(start_broker: StartBroker, version: int) -> None:
    broker = start_broker(data="/var/lib/respool")
    broker.create_topic("rides", partitions=2)
    broker.create_topic("idle")
    broker.produce("rides", 1, values=(b"x" * 500,))
    written = broker.disk.size("rides-1/00000000000000000000.log")
    assert written > 500

    folder = ask(broker, version, None)

    assert folder.log_dir == "/var/lib/respool"
    assert sizes(folder) == {("rides", 0): 0, ("rides", 1): written, ("idle", 0): 0}
    assert not any(
        one.offset_lag or one.is_future_key for topic in folder.topics for one in topic.partitions
    )
    if version >= 4:
        assert folder.usable_bytes == broker.disk.free_bytes()
        assert folder.total_bytes == broker.disk.total_bytes() > 0
    assert not getattr(folder, "is_cordoned", False)


@every_version
def test_only_partitions_asked_for_are_told(running_broker: RunningBroker, version: int) -> None:
    running_broker.create_topic("rides", partitions=3)
    running_broker.create_topic("idle")

    assert sizes(ask(running_broker, version, {"rides": [2, 0, 7], "nobody": [0]})) == {
        ("rides", 2): 0,
        ("rides", 0): 0,
    }
    assert sizes(ask(running_broker, version, {})) == {}


@every_version
def test_a_partition_that_is_offline_is_left_out(
    running_broker: RunningBroker, version: int
) -> None:
    running_broker.create_topic("rides", partitions=2)
    running_broker.take_offline("rides", 0)

    assert sizes(ask(running_broker, version, None)) == {("rides", 1): 0}


@pytest.mark.parametrize("method", ["free_bytes", "total_bytes"])
def test_a_disk_that_does_not_answer_is_told(
    running_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    running_broker.create_topic("rides")

    def fail() -> int:
        raise DiskFailed("as the test wants it")

    monkeypatch.setattr(running_broker.disk, method, fail)
    (folder,) = running_broker.ask(Api.DESCRIBE_LOG_DIRS, 4, topics=None).results

    assert (folder.error_code, folder.topics) == (STORAGE_ERROR, ())
    assert (folder.total_bytes, folder.usable_bytes) == (-1, -1)


@plays(brokers=2)
async def test_what_other_brokers_have_is_left_out(cluster: Cluster) -> None:
    """It failed the whole request, for whoever asks how far copies are that have only just begun."""
    await cluster.create([2], [1])
    await cluster.until_led(TWO)
    wanted = [{"topic": TOPIC, "partitions": [0, 1, 2]}]
    reply = await cluster[TWO].ask(Api.DESCRIBE_LOG_DIRS, 4, topics=wanted)
    assert sizes(reply.results[0]) == {(TOPIC, 0): 0}
