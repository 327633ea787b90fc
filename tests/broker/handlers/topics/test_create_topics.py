"""CreateTopics, in every version: each topic on its own, and nothing half done."""

from typing import Any

import pytest

from broker.running_broker import RunningBroker, StartBroker
from broker.wire_client import versions
from respool.wire.api_table import Api

VERSIONS = versions(Api.CREATE_TOPICS)
REQUEST_TIMED_OUT = 7
INVALID_TOPIC = 17
TOPIC_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_REPLICATION_FACTOR = 38
INVALID_REPLICA_ASSIGNMENT = 39
INVALID_CONFIG = 40
INVALID_REQUEST = 42

every_version = pytest.mark.parametrize("version", VERSIONS)


def topic(name: str, **fields: Any) -> dict[str, Any]:
    defaults = {"num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
    return {"name": name, **defaults, **fields}


def ask(broker: RunningBroker, version: int, *topics: Any, validate_only: bool = False) -> Any:
    return broker.ask(
        Api.CREATE_TOPICS, version, topics=topics, timeout=1000, validate_only=validate_only
    ).topics


@every_version
def test_a_created_topic_takes_records(running_broker: RunningBroker, version: int) -> None:
    (result,) = ask(running_broker, version, topic("rides", num_partitions=3))

    assert (result.name, result.error_code, result.error_message) == ("rides", 0, None)
    assert running_broker.produce("rides", 2) == 0
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
    if version >= 7:
        assert result.topic_id == running_broker.broker.image.topics["rides"].id


@every_version
def test_a_created_topic_is_there_after_a_restart(
    running_broker: RunningBroker, version: int
) -> None:
    ask(running_broker, version, topic("rides", num_partitions=2))
    created = running_broker.broker.image.topics["rides"]
    running_broker.restart(crash=True)

    found = running_broker.broker.image.topics["rides"]
    assert (found.id, len(found.partitions)) == (created.id, 2)
    assert running_broker.produce("rides", 1) == 0


@every_version
def test_minus_one_stands_for_the_brokers_defaults(start_broker: StartBroker, version: int) -> None:
    broker = start_broker(num_partitions=4)

    (result,) = ask(broker, version, topic("rides", num_partitions=-1, replication_factor=-1))

    assert result.error_code == 0
    assert len(broker.broker.image.topics["rides"].partitions) == 4


@every_version
def test_settings_are_taken_over_and_told_with_where_they_come_from(
    start_broker: StartBroker, version: int
) -> None:
    broker = start_broker(topic={"segment.bytes": "4096"})
    configs = [{"name": "retention.ms", "value": "1000"}]

    (result,) = ask(broker, version, topic("rides", configs=configs))

    assert result.error_code == 0
    assert broker.broker.partitions.find("rides", 0).config.retention_ms == 1000
    if version >= 5:
        told = {one.name: (one.value, one.config_source) for one in result.configs}
        assert told["retention.ms"] == ("1000", 1)
        assert told["segment.bytes"] == ("4096", 4)
        assert told["cleanup.policy"] == ("delete", 5)
        assert not any(one.read_only or one.is_sensitive for one in result.configs)


@every_version
def test_validate_only_creates_nothing(running_broker: RunningBroker, version: int) -> None:
    results = ask(running_broker, version, topic("good"), topic("a b"), validate_only=True)

    assert [one.error_code for one in results] == [0, INVALID_TOPIC]
    assert not running_broker.broker.image.topics
    assert len(running_broker.broker.partitions) == 0


@every_version
@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"name": "a/b"}, INVALID_TOPIC),
        ({"num_partitions": 0}, INVALID_PARTITIONS),
        ({"num_partitions": -2}, INVALID_PARTITIONS),
        ({"num_partitions": 10_001}, INVALID_PARTITIONS),
        ({"replication_factor": 0}, INVALID_REPLICATION_FACTOR),
        ({"replication_factor": 2}, INVALID_REPLICATION_FACTOR),
        ({"configs": [{"name": "retention.ms", "value": "soon"}]}, INVALID_CONFIG),
        ({"configs": [{"name": "retention.ms", "value": None}]}, INVALID_CONFIG),
        ({"configs": [{"name": "no.such", "value": "1"}]}, INVALID_CONFIG),
    ],
)
def test_what_cannot_be_is_refused_with_words_and_leaves_nothing(
    running_broker: RunningBroker, version: int, fields: dict[str, Any], code: int
) -> None:
    (result,) = ask(running_broker, version, topic(**{"name": "rides", **fields}))

    assert result.error_code == code
    assert result.error_message
    assert not running_broker.broker.image.topics


@every_version
def test_one_refused_topic_does_not_hinder_the_others(
    running_broker: RunningBroker, version: int
) -> None:
    running_broker.create_topic("old")

    results = ask(running_broker, version, topic("old"), topic("new"), topic("."))

    assert [(one.name, one.error_code) for one in results] == [
        ("old", TOPIC_EXISTS),
        ("new", 0),
        (".", INVALID_TOPIC),
    ]


@every_version
def test_a_topic_named_twice_is_not_created(running_broker: RunningBroker, version: int) -> None:
    results = ask(running_broker, version, topic("twice"), topic("once"), topic("twice"))

    assert [(one.name, one.error_code) for one in results] == [
        ("twice", INVALID_REQUEST),
        ("once", 0),
    ]
    assert list(running_broker.broker.image.topics) == ["once"]


def assigned(*partitions: tuple[int, list[int]], **fields: Any) -> dict[str, Any]:
    assignments = [{"partition_index": index, "broker_ids": ids} for index, ids in partitions]
    return topic(
        "rides",
        **{"num_partitions": -1, "replication_factor": -1, **fields},
        assignments=assignments,
    )


@every_version
def test_replicas_may_be_assigned_by_hand(running_broker: RunningBroker, version: int) -> None:
    (result,) = ask(running_broker, version, assigned((1, [1]), (0, [1])))

    assert result.error_code == 0
    assert len(running_broker.broker.image.topics["rides"].partitions) == 2


@every_version
@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (assigned((0, [2])), INVALID_REPLICA_ASSIGNMENT),
        (assigned((0, [])), INVALID_REPLICA_ASSIGNMENT),
        (assigned((0, [1, 1])), INVALID_REPLICA_ASSIGNMENT),
        (assigned((1, [1])), INVALID_REPLICA_ASSIGNMENT),
        (assigned((0, [1]), (0, [1])), INVALID_REPLICA_ASSIGNMENT),
        (assigned((0, [1]), num_partitions=1), INVALID_REQUEST),
        (assigned((0, [1]), replication_factor=1), INVALID_REQUEST),
    ],
)
def test_an_assignment_that_cannot_be_is_refused(
    running_broker: RunningBroker, version: int, wanted: dict[str, Any], code: int
) -> None:
    (result,) = ask(running_broker, version, wanted)

    assert result.error_code == code
    assert not running_broker.broker.image.topics


@every_version
def test_without_a_metadata_store_no_topic_is_created(
    running_broker: RunningBroker, version: int
) -> None:
    running_broker.run(running_broker.store.close())

    (result,) = ask(running_broker, version, topic("rides"))

    assert result.error_code == REQUEST_TIMED_OUT
    assert not running_broker.broker.image.topics


@every_version
def test_a_topic_that_nobody_leads_when_the_time_is_up_is_created_and_told_so(
    running_broker: RunningBroker, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_broker.broker.catalog, "is_led", lambda name: name != "rides")

    refused, created = running_broker.ask(
        Api.CREATE_TOPICS,
        version,
        topics=[topic("rides"), topic("fares")],
        timeout=1,
        validate_only=False,
    ).topics

    assert (refused.error_code, created.error_code) == (REQUEST_TIMED_OUT, 0)
    assert refused.error_message
    assert set(running_broker.broker.image.topics) == {"rides", "fares"}


def test_a_topic_of_many_partitions_is_made_in_parts_and_deleted_with_all_of_them(
    running_broker: RunningBroker,
) -> None:
    (result,) = ask(running_broker, 7, topic("rides", num_partitions=250))
    assert (result.error_code, result.num_partitions) == (0, 250)
    assert running_broker.produce("rides", 249) == 0
    running_broker.restart(crash=True)
    assert running_broker.produce("rides", 249) == 1

    running_broker.run(running_broker.broker.topics.delete("rides"))

    left = running_broker.run(running_broker.store.snapshot("/partitions/")).values
    assert not left
    assert len(running_broker.broker.partitions) == 0


@every_version
@pytest.mark.parametrize("validate_only", [False, True])
def test_a_setting_that_respool_cannot_do_is_refused_with_the_reason(
    running_broker: RunningBroker, version: int, validate_only: bool
) -> None:
    wanted = {
        "tiered": ("remote.storage.enable", "true"),
        "lagging": ("remote.copy.lag.ms", "0"),
        "other": ("no.such", "1"),
        "kept": ("cleanup.policy", ""),
        "plain": ("remote.storage.enable", "false"),
    }
    topics = [
        topic(name, configs=[{"name": setting, "value": value}])
        for name, (setting, value) in wanted.items()
    ]

    results = ask(running_broker, version, *topics, validate_only=validate_only)

    told = {one.name: (one.error_code, one.error_message) for one in results}
    assert {name: code for name, (code, _) in told.items()} == {
        "tiered": INVALID_CONFIG,
        "lagging": INVALID_CONFIG,
        "other": INVALID_CONFIG,
        "kept": 0,
        "plain": 0,
    }
    assert "needs an archive" in told["tiered"][1]
    assert "never removed before they are archived" in told["lagging"][1]
    assert told["other"][1] == "Unknown topic config name: no.such"
    assert set(running_broker.broker.image.topics) == (
        set() if validate_only else {"kept", "plain"}
    )


def test_settings_of_kafka_are_read_again_after_a_restart(running_broker: RunningBroker) -> None:
    overrides = {
        "cleanup.policy": "",
        "compression.gzip.level": "9",
        "flush.messages": "1",
        "message.downconversion.enable": "false",
        "remote.storage.enable": "false",
    }
    configs = [{"name": name, "value": value} for name, value in overrides.items()]
    (result,) = ask(running_broker, VERSIONS[-1], topic("rides", configs=configs))
    assert result.error_code == 0
    before = running_broker.broker.partitions.find("rides", 0).config
    running_broker.restart(crash=True)

    assert running_broker.broker.image.topics["rides"].overrides == overrides
    after = running_broker.broker.partitions.find("rides", 0).config
    assert after == before
    assert not after.message_downconversion_enable
