"""CreatePartitions, in every version."""

from typing import Any

import pytest

from broker.running_broker import RunningBroker
from broker.wire_client import versions
from respool.wire.api_table import Api

UNKNOWN_TOPIC = 3
INVALID_PARTITIONS = 37
INVALID_REPLICA_ASSIGNMENT = 39
INVALID_REQUEST = 42

every_version = pytest.mark.parametrize("version", versions(Api.CREATE_PARTITIONS))


def ask(
    broker: RunningBroker, version: int, *topics: tuple[str, int, Any], validate_only: bool = False
) -> Any:
    wanted = [
        {
            "name": name,
            "count": count,
            "assignments": ids and [{"broker_ids": brokers} for brokers in ids],
        }
        for name, count, ids in topics
    ]
    return broker.ask(
        Api.CREATE_PARTITIONS, version, topics=wanted, timeout=1000, validate_only=validate_only
    ).results


@every_version
def test_new_partitions_take_records_and_old_ones_keep_theirs(
    running_broker: RunningBroker, version: int
) -> None:
    before = running_broker.create_topic("rides")
    running_broker.produce("rides")

    (result,) = ask(running_broker, version, ("rides", 3, None))

    assert (result.name, result.error_code, result.error_message) == ("rides", 0, None)
    assert running_broker.broker.image.topics["rides"].id == before.id
    assert running_broker.produce("rides", 0) == 1
    assert running_broker.produce("rides", 2) == 0
    running_broker.restart(crash=True)
    assert running_broker.produce("rides", 2) == 1


@every_version
def test_replicas_may_be_assigned_by_hand(running_broker: RunningBroker, version: int) -> None:
    running_broker.create_topic("rides")

    (result,) = ask(running_broker, version, ("rides", 3, [[1], [1]]))

    assert result.error_code == 0
    assert len(running_broker.broker.image.topics["rides"].partitions) == 3


@every_version
@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (("nobody", 2, None), UNKNOWN_TOPIC),
        (("rides", 2, None), INVALID_PARTITIONS),
        (("rides", 1, None), INVALID_PARTITIONS),
        (("rides", -1, None), INVALID_PARTITIONS),
        (("rides", 10_001, None), INVALID_PARTITIONS),
        (("rides", 4, [[1]]), INVALID_REPLICA_ASSIGNMENT),
        (("rides", 3, [[2]]), INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    running_broker: RunningBroker, version: int, wanted: tuple[str, int, Any], code: int
) -> None:
    running_broker.create_topic("rides", partitions=2)

    (result,) = ask(running_broker, version, wanted)

    assert result.error_code == code
    assert result.error_message
    assert len(running_broker.broker.image.topics["rides"].partitions) == 2
    assert len(running_broker.broker.partitions) == 2


@every_version
def test_validate_only_adds_nothing(running_broker: RunningBroker, version: int) -> None:
    running_broker.create_topic("rides")

    (result,) = ask(running_broker, version, ("rides", 2, None), validate_only=True)

    assert result.error_code == 0
    assert len(running_broker.broker.image.topics["rides"].partitions) == 1


@every_version
def test_a_topic_named_twice_does_not_grow(running_broker: RunningBroker, version: int) -> None:
    running_broker.create_topic("rides")
    running_broker.create_topic("other")

    results = ask(
        running_broker, version, ("rides", 2, None), ("other", 2, None), ("rides", 3, None)
    )

    assert [(one.name, one.error_code) for one in results] == [
        ("rides", INVALID_REQUEST),
        ("other", 0),
    ]
    assert len(running_broker.broker.image.topics["rides"].partitions) == 1
