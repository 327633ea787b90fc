"""AlterReplicaLogDirs, in every version: what is where it is to be is done, and there is nowhere else."""

import pytest

from broker.running_broker import RunningBroker, StartBroker
from broker.wire_client import versions
from respool.model.errors import DiskFailed, LogDirNotFound, ReplicaNotAvailable, StorageFailed
from respool.wire.api_table import Api

HERE = "/var/lib/respool"

every_version = pytest.mark.parametrize("version", versions(Api.ALTER_REPLICA_LOG_DIRS))


def ask(
    broker: RunningBroker, version: int, folders: dict[str, dict[str, list[int]]]
) -> dict[tuple[str, int], int]:
    dirs = [
        {
            "path": path,
            "topics": [{"name": name, "partitions": each} for name, each in topics.items()],
        }
        for path, topics in folders.items()
    ]
    reply = broker.ask(Api.ALTER_REPLICA_LOG_DIRS, version, dirs=dirs)
    return {
        (topic.topic_name, one.partition_index): one.error_code
        for topic in reply.results
        for one in topic.partitions
    }


@every_version
def test_a_replica_is_in_the_folder_there_is_and_in_no_other(
    start_broker: StartBroker, version: int
) -> None:
    broker = start_broker(data=HERE)
    broker.create_topic("rides", partitions=2)
    broker.create_topic("fares")
    codes = ask(
        broker, version, {HERE: {"rides": [0, 1, 2], "gone": [0]}, "/elsewhere": {"fares": [0]}}
    )
    assert codes == {
        ("rides", 0): 0,
        ("rides", 1): 0,
        ("rides", 2): ReplicaNotAvailable.code,
        ("gone", 0): ReplicaNotAvailable.code,
        ("fares", 0): LogDirNotFound.code,
    }


@every_version
def test_one_that_is_offline_says_so(start_broker: StartBroker, version: int) -> None:
    broker = start_broker(data=HERE)
    broker.create_topic("rides")
    broker.broker.partitions.find("rides", 0).go_offline(DiskFailed("as the test wants"))
    assert ask(broker, version, {HERE: {"rides": [0]}}) == {("rides", 0): StorageFailed.code}


def test_nothing_asked_nothing_answered(running_broker: RunningBroker) -> None:
    assert ask(running_broker, 2, {}) == {}
