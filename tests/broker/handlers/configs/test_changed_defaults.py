"""Defaults of topics that are changed while the broker runs: they act at once, stay, and give way to a topic's own."""

from typing import Any

import pytest

from broker.handlers.configs.test_alter_configs import (
    APPEND,
    BROKER,
    DELETE,
    INVALID_CONFIG,
    INVALID_REQUEST,
    SUBTRACT,
    ask,
    both_in_every_version,
    resource,
)
from broker.running_broker import RunningBroker, StartBroker
from respool.wire.api_table import Api

INCREMENTAL = Api.INCREMENTAL_ALTER_CONFIGS


def config(broker: RunningBroker, topic: str = "rides") -> Any:
    return broker.broker.partitions.find(topic, 0).config


@both_in_every_version
@pytest.mark.parametrize("name", ["1", ""])
def test_a_changed_default_acts_at_once_on_topics_without_a_value_of_their_own(
    running_broker: RunningBroker, api: Api, version: int, name: str
) -> None:
    running_broker.create_topic("rides")
    running_broker.create_topic("trips", retention_ms="1000")
    change = resource(BROKER, name, ("log.retention.ms", "5000"), ("message.max.bytes", "2000"))

    assert ask(running_broker, api, version, change, validate_only=True) == [0]
    assert config(running_broker).retention_ms == 7 * 24 * 3_600_000

    assert ask(running_broker, api, version, change) == [0]
    assert (config(running_broker).retention_ms, config(running_broker).max_message_bytes) == (
        5000,
        2000,
    )
    assert (config(running_broker, "trips").retention_ms) == 1000
    running_broker.create_topic("later")
    assert config(running_broker, "later").retention_ms == 5000

    running_broker.restart(crash=True)
    for topic in ("rides", "later"):
        assert config(running_broker, topic).retention_ms == 5000
    assert config(running_broker, "trips").retention_ms == 1000


def test_a_brokers_own_default_goes_before_that_of_all_and_that_before_the_settings_file(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(topic={"retention.ms": "1"})
    broker.create_topic("rides")
    found = [config(broker).retention_ms]
    for name, value in (("", "2"), ("1", "3")):
        broker.set_for_broker(name, {"log.retention.ms": value})
        found.append(config(broker).retention_ms)
    # In another unit, too: the place decides.
    broker.set_for_broker("1", {"log.retention.hours": "1"})
    found.append(config(broker).retention_ms)
    for name in ("1", ""):
        broker.set_for_broker(name, {})
        found.append(config(broker).retention_ms)
    assert found == [1, 2, 3, 3_600_000, 2, 1]


@pytest.mark.parametrize(
    ("changed", "setting", "value"),
    [
        ({"log.retention.hours": "2", "log.retention.minutes": "5"}, "retention_ms", 300_000),
        ({"log.retention.hours": "-1"}, "retention_ms", -1),
        ({"log.roll.hours": "2"}, "segment_ms", 7_200_000),
        ({"log.roll.jitter.hours": "1"}, "segment_jitter_ms", 3_600_000),
        ({"log.segment.bytes": "4096"}, "segment_bytes", 4096),
        ({"min.insync.replicas": "2"}, "min_insync_replicas", 2),
        ({"unclean.leader.election.enable": "TRUE"}, "unclean_leader_election_enable", True),
        ({"log.cleanup.policy": "compact"}, "is_compacted", True),
        (
            {"log.message.timestamp.type": "LogAppendTime"},
            "message_timestamp_type",
            "LogAppendTime",
        ),
        ({"compression.type": "zstd"}, "compression_type", "zstd"),
        ({"respool.flush": "os"}, "respool_flush", "os"),
        ({"log.flush.interval.ms": "5"}, "respool_flush", "interval"),
        ({"log.flush.interval.ms": "5"}, "respool_flush_interval_ms", 5),
        ({"compression.type": "gzip", "compression.gzip.level": "9"}, "compression_gzip_level", 9),
    ],
)
def test_every_default_has_kafkas_name(
    running_broker: RunningBroker, changed: dict[str, str], setting: str, value: object
) -> None:
    running_broker.create_topic("rides")
    running_broker.set_for_broker("", changed)
    assert getattr(config(running_broker), setting) == value
    rules = running_broker.broker.image.topics["rides"].rules
    assert rules.min_isr == config(running_broker).min_insync_replicas


@both_in_every_version
@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("log.retention.ms", "soon", INVALID_CONFIG),
        ("log.retention.hours", "1.5", INVALID_CONFIG),
        ("log.retention.hours", "-2", INVALID_CONFIG),
        ("log.roll.hours", "0", INVALID_CONFIG),
        ("log.preallocate", "true", INVALID_CONFIG),
        ("log.flush.interval.messages", "10000", INVALID_CONFIG),
        # It contradicts the other limit.
        ("log.cleaner.min.compaction.lag.ms", "9223372036854775807", INVALID_CONFIG),
        # A topic's name for it, and names that nobody knows.
        ("retention.ms", "5", INVALID_CONFIG),
        ("leader.replication.throttled.replicas", "*", INVALID_CONFIG),
        ("log.retention.days", "5", INVALID_CONFIG),
        # A Java key store, which is never read.
        ("ssl.keystore.location", "x", INVALID_CONFIG),
        # What is read when a broker starts.
        ("num.partitions", "5", INVALID_REQUEST),
        ("respool.io.threads", "5", INVALID_REQUEST),
        ("num.network.threads", "5", INVALID_REQUEST),
        ("process.roles", "broker", INVALID_REQUEST),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    running_broker: RunningBroker, *, api: Api, version: int, name: str, value: str, code: int
) -> None:
    running_broker.create_topic("rides")
    running_broker.set_for_broker("", {"log.cleaner.max.compaction.lag.ms": "1000"})
    before = config(running_broker)

    change = resource(BROKER, "1", ("message.max.bytes", "2000"), (name, value))

    assert ask(running_broker, api, version, change) == [code]
    assert config(running_broker) == before
    assert "1" not in running_broker.broker.image.broker_overrides


def test_a_default_that_is_a_list_is_added_to_and_taken_from(
    running_broker: RunningBroker,
) -> None:
    running_broker.create_topic("rides")
    policy = "log.cleanup.policy"
    for operation, word, after in (
        (APPEND, "compact", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
    ):
        change = resource(BROKER, "", (policy, word, operation))
        assert ask(running_broker, INCREMENTAL, 1, change) == [0]
        assert str(config(running_broker).cleanup_policy) == after
    change = resource(BROKER, "", ("log.retention.ms", "5", APPEND))
    assert ask(running_broker, INCREMENTAL, 1, change) == [INVALID_CONFIG]
    change = resource(BROKER, "", (policy, None, DELETE))
    assert ask(running_broker, INCREMENTAL, 1, change) == [0]
    assert str(config(running_broker).cleanup_policy) == "delete"


def test_a_topic_is_checked_against_the_changed_defaults(running_broker: RunningBroker) -> None:
    running_broker.create_topic("rides")
    running_broker.set_for_broker("", {"log.cleaner.max.compaction.lag.ms": "1000"})
    change = resource(2, "rides", ("min.compaction.lag.ms", "2000"))
    assert ask(running_broker, INCREMENTAL, 1, change) == [INVALID_CONFIG]


def test_a_topic_that_contradicts_a_changed_default_is_still_served(
    running_broker: RunningBroker,
) -> None:
    running_broker.create_topic("rides", min_compaction_lag_ms="2000")
    running_broker.set_for_broker("", {"log.cleaner.max.compaction.lag.ms": "1000"})
    assert config(running_broker).min_compaction_lag_ms == 2000
    assert config(running_broker).max_compaction_lag_ms == 2000
