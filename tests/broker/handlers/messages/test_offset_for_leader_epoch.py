"""OffsetForLeaderEpoch, in every version."""

from typing import Any

import pytest

from broker.running_broker import RunningBroker
from broker.wire_client import versions
from respool.wire.api_table import Api

UNKNOWN_TOPIC = 3
STORAGE_ERROR = 56
FENCED_LEADER_EPOCH = 74
UNKNOWN_LEADER_EPOCH = 75
CURRENT = -1
UNKNOWN = (-1, -1)

every_version = pytest.mark.parametrize("version", versions(Api.OFFSET_FOR_LEADER_EPOCH))


def ask(
    broker: RunningBroker, version: int, epoch: int, *, current: int = CURRENT, partition: int = 0
) -> tuple[int, tuple[int, int]]:
    """The error code, and the epoch with its end offset."""
    wanted: dict[str, Any] = {
        "partition": partition,
        "current_leader_epoch": current,
        "leader_epoch": epoch,
    }
    reply = broker.ask(
        Api.OFFSET_FOR_LEADER_EPOCH,
        version,
        replica_id=-1,
        topics=[{"topic": "rides", "partitions": [wanted]}],
    )
    (answer,) = reply.topics[0].partitions
    assert (reply.topics[0].topic, answer.partition) == ("rides", partition)
    return answer.error_code, (answer.leader_epoch, answer.end_offset)


@pytest.fixture
def two_epochs(running_broker: RunningBroker) -> RunningBroker:
    """Two records by leader epoch 0, a crash, and one record by epoch 1."""
    running_broker.create_topic("rides")
    running_broker.produce("rides", values=(b"a", b"b"))
    running_broker.restart(crash=True)
    running_broker.produce("rides")
    return running_broker


@every_version
def test_an_epoch_ends_where_the_next_one_begins(two_epochs: RunningBroker, version: int) -> None:
    assert ask(two_epochs, version, 0) == (0, (0, 2))


@every_version
def test_the_current_epoch_ends_with_the_log(two_epochs: RunningBroker, version: int) -> None:
    assert ask(two_epochs, version, 1) == (0, (1, 3))


@every_version
def test_an_epoch_that_never_was_has_no_end(two_epochs: RunningBroker, version: int) -> None:
    assert ask(two_epochs, version, 2) == (0, UNKNOWN)


@every_version
def test_a_client_must_believe_in_the_current_leader(
    two_epochs: RunningBroker, version: int
) -> None:
    assert ask(two_epochs, version, 0, current=1) == (0, (0, 2))
    assert ask(two_epochs, version, 0, current=0) == (FENCED_LEADER_EPOCH, UNKNOWN)
    assert ask(two_epochs, version, 0, current=2) == (UNKNOWN_LEADER_EPOCH, UNKNOWN)


@every_version
def test_a_partition_that_is_not_here_is_told(two_epochs: RunningBroker, version: int) -> None:
    assert ask(two_epochs, version, 0, partition=5) == (UNKNOWN_TOPIC, UNKNOWN)


@every_version
def test_a_partition_that_is_offline_is_told(two_epochs: RunningBroker, version: int) -> None:
    two_epochs.take_offline("rides")

    assert ask(two_epochs, version, 0) == (STORAGE_ERROR, UNKNOWN)
