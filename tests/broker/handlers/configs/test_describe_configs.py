"""DescribeConfigs, in every version: the value, and where it comes from."""

from typing import Any

import pytest

from broker.running_broker import RunningBroker, StartBroker
from broker.wire_client import versions
from respool.model.dynamic_config import DYNAMIC_RULES
from respool.model.group_config import GROUP_RULES
from respool.model.topic_config import CONFIG_RULES
from respool.wire.api_table import Api

VERSIONS = versions(Api.DESCRIBE_CONFIGS)
UNKNOWN_TOPIC = 3
INVALID_TOPIC = 17
INVALID_REQUEST = 42

TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
FROM_TOPIC, FROM_BROKER, FROM_ALL, FROM_SETTINGS, FROM_DEFAULT = range(1, 6)
FROM_GROUP = 8
BOOLEAN, STRING, INT, LONG, LIST = 1, 2, 3, 5, 7

every_version = pytest.mark.parametrize("version", VERSIONS)


def ask(
    broker: RunningBroker,
    version: int,
    *resources: tuple[int, str],
    keys: Any = None,
    **flags: bool,
) -> Any:
    flags = {"include_synonyms": False, "include_documentation": False, **flags}
    wanted = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
        for kind, name in resources
    ]
    results = broker.ask(Api.DESCRIBE_CONFIGS, version, resources=wanted, **flags).results
    assert [(one.resource_type, one.resource_name) for one in results] == list(resources)
    return results


@every_version
def test_a_topic_has_every_setting(running_broker: RunningBroker, version: int) -> None:
    running_broker.create_topic("rides")

    (result,) = ask(running_broker, version, (TOPIC, "rides"))

    assert (result.error_code, result.error_message) == (0, None)
    assert {one.name for one in result.configs} == set(CONFIG_RULES)
    assert not any(one.read_only or one.is_sensitive for one in result.configs)


@every_version
def test_a_value_comes_from_the_topic_the_settings_or_the_default(
    start_broker: StartBroker, version: int
) -> None:
    broker = start_broker(topic={"retention.ms": "5000", "segment.bytes": "4096"})
    broker.create_topic("rides", retention_ms="1000")

    (result,) = ask(broker, version, (TOPIC, "rides"), include_synonyms=True)

    entries = {one.name: one for one in result.configs}
    assert synonyms(entries["retention.ms"]) == [
        ("retention.ms", "1000", FROM_TOPIC),
        ("log.retention.ms", "5000", FROM_SETTINGS),
        ("log.retention.hours", "168", FROM_DEFAULT),
    ]
    assert synonyms(entries["segment.bytes"]) == [
        ("log.segment.bytes", "4096", FROM_SETTINGS),
        ("log.segment.bytes", "1073741824", FROM_DEFAULT),
    ]
    assert synonyms(entries["respool.flush"]) == [("respool.flush", "always", FROM_DEFAULT)]
    in_hours = {"segment.ms", "segment.jitter.ms"}
    for entry in result.configs:
        assert entry.config_source == synonyms(entry)[0][2]
        assert entry.value == synonyms(entry)[0][1] or entry.name in in_hours


def synonyms(entry: Any) -> list[tuple[str, str, int]]:
    return [(one.name, one.value, one.source) for one in entry.synonyms]


@every_version
def test_synonyms_and_documentation_are_told_to_those_who_ask(
    running_broker: RunningBroker, version: int
) -> None:
    running_broker.create_topic("rides")

    (quiet,) = ask(running_broker, version, (TOPIC, "rides"))
    (asked,) = ask(running_broker, version, (TOPIC, "rides"), include_documentation=True)

    assert all(one.synonyms == () for one in quiet.configs)
    if version >= 3:
        assert all(one.documentation is None for one in quiet.configs)
        assert all(one.documentation for one in asked.configs)


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= 3])
def test_types_are_told(running_broker: RunningBroker, version: int) -> None:
    running_broker.create_topic("rides")

    topic, broker = ask(running_broker, version, (TOPIC, "rides"), (BROKER, "1"))

    types = {one.name: one.config_type for one in (*topic.configs, *broker.configs)}
    assert types["cleanup.policy"] == LIST
    assert types["compression.type"] == STRING
    assert types["segment.bytes"] == INT
    assert types["retention.ms"] == LONG
    assert types["auto.create.topics.enable"] == BOOLEAN
    assert types["num.partitions"] == INT


@every_version
def test_only_the_named_settings_are_told(running_broker: RunningBroker, version: int) -> None:
    running_broker.create_topic("rides")

    (some,) = ask(running_broker, version, (TOPIC, "rides"), keys=["retention.ms", "no.such"])
    (every,) = ask(running_broker, version, (TOPIC, "rides"), keys=[])

    assert [one.name for one in some.configs] == ["retention.ms"]
    assert {one.name for one in every.configs} == set(CONFIG_RULES)


@every_version
def test_a_brokers_settings_are_told_under_kafkas_names_and_most_are_read_only(
    start_broker: StartBroker, version: int
) -> None:
    broker = start_broker(
        broker_id=3, num_partitions=5, auto_create_topics=False, topic={"retention.ms": "1000"}
    )

    (result,) = ask(broker, version, (BROKER, "3"))

    told = {one.name: (one.value, one.config_source) for one in result.configs}
    assert len(told) == len(result.configs)
    assert {one.name for one in result.configs if not one.read_only} == set(DYNAMIC_RULES)
    assert told["node.id"] == ("3", FROM_SETTINGS)
    assert told["num.partitions"] == ("5", FROM_SETTINGS)
    assert told["auto.create.topics.enable"] == ("false", FROM_SETTINGS)
    assert told["log.retention.ms"] == ("1000", FROM_SETTINGS)
    assert told["message.max.bytes"] == ("1048588", FROM_DEFAULT)
    assert told["transaction.max.timeout.ms"] == ("900000", FROM_DEFAULT)
    assert told["listeners"] == ("PLAINTEXT://127.0.0.1:9092", FROM_DEFAULT)
    assert told["respool.io.threads"] == ("4", FROM_DEFAULT)
    # What a topic would get here.
    assert told["default.replication.factor"] == ("1", FROM_DEFAULT)
    # As in Kafka: a default in hours is not told in milliseconds, too.
    assert told["log.roll.hours"] == ("168", FROM_DEFAULT)
    assert told["log.roll.ms"] == (None, FROM_DEFAULT)
    assert not any(one.is_sensitive for one in result.configs if one.name == "log.roll.ms")


@every_version
def test_a_static_setting_has_its_default_for_a_synonym(
    start_broker: StartBroker, version: int
) -> None:
    broker = start_broker(num_partitions=5)
    keys = ["num.partitions", "num.io.threads", "group.max.size"]

    (result,) = ask(broker, version, (BROKER, "1"), keys=keys, include_synonyms=True)

    told = {one.name: synonyms(one) for one in result.configs}
    assert told == {
        "num.partitions": [
            ("num.partitions", "5", FROM_SETTINGS),
            ("num.partitions", "1", FROM_DEFAULT),
        ],
        "group.max.size": [("group.max.size", "2147483647", FROM_DEFAULT)],
    }


@every_version
def test_the_default_of_all_brokers_is_what_was_changed_for_all(
    running_broker: RunningBroker, version: int
) -> None:
    running_broker.set_for_broker("", {"message.max.bytes": "9000"})
    running_broker.set_for_broker("1", {"message.max.bytes": "8000", "log.retention.ms": "7"})

    (result,) = ask(running_broker, version, (BROKER, ""), include_synonyms=True)

    (entry,) = result.configs
    assert synonyms(entry) == [("message.max.bytes", "9000", FROM_ALL)]
    assert (entry.value, entry.config_source, entry.read_only) == ("9000", FROM_ALL, False)


@every_version
def test_a_changed_default_comes_before_the_settings_file_and_after_the_topic(
    start_broker: StartBroker, version: int
) -> None:
    broker = start_broker(topic={"retention.ms": "5000"})
    broker.create_topic("rides", retention_ms="1000")
    broker.create_topic("trips")
    broker.set_for_broker("", {"log.retention.hours": "3", "log.retention.minutes": "20"})
    broker.set_for_broker("1", {"log.retention.ms": "4000"})
    defaults = [
        ("log.retention.ms", "4000", FROM_BROKER),
        ("log.retention.minutes", "20", FROM_ALL),
        ("log.retention.hours", "3", FROM_ALL),
        ("log.retention.ms", "5000", FROM_SETTINGS),
        ("log.retention.hours", "168", FROM_DEFAULT),
    ]

    rides, trips, itself = ask(
        broker,
        version,
        (TOPIC, "rides"),
        (TOPIC, "trips"),
        (BROKER, "1"),
        include_synonyms=True,
    )

    (entry,) = [one for one in rides.configs if one.name == "retention.ms"]
    assert entry.value == "1000"
    assert synonyms(entry) == [("retention.ms", "1000", FROM_TOPIC), *defaults]
    (entry,) = [one for one in trips.configs if one.name == "retention.ms"]
    assert (entry.value, entry.config_source) == ("4000", FROM_BROKER)
    assert synonyms(entry) == defaults
    told = {one.name: one for one in itself.configs}
    assert synonyms(told["log.retention.ms"]) == defaults
    assert synonyms(told["log.retention.minutes"]) == defaults[1:]
    assert told["log.retention.hours"].value == "3"


@every_version
def test_what_is_changed_while_a_broker_runs_comes_from_itself_from_all_or_from_the_file(
    start_broker: StartBroker, version: int
) -> None:
    broker = start_broker(broker_id=3)
    rate, other = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
    broker.set_for_broker("", {rate: "5", other: "6"})
    broker.set_for_broker("3", {rate: "7"})

    (result,) = ask(broker, version, (BROKER, "3"), keys=[rate, other], include_synonyms=True)

    told = {one.name: one for one in result.configs}
    assert (told[rate].value, told[rate].config_source) == ("7", FROM_BROKER)
    assert [one.source for one in told[rate].synonyms] == [FROM_BROKER, FROM_ALL, FROM_DEFAULT]
    assert (told[other].value, told[other].config_source) == ("6", FROM_ALL)
    # Asked about all, it does not tell what is its own.
    (result,) = ask(broker, version, (BROKER, ""), keys=[rate])
    assert [(one.value, one.config_source) for one in result.configs] == [("5", FROM_ALL)]


@every_version
def test_what_follows_from_another_default_is_told_as_it_is_in_force(
    start_broker: StartBroker, version: int
) -> None:
    broker = start_broker(topic={"respool.flush": "os"})
    broker.create_topic("rides")
    broker.set_for_broker("", {"log.flush.interval.ms": "5"})

    for kind, name in ((TOPIC, "rides"), (BROKER, "1")):
        (result,) = ask(broker, version, (kind, name), include_synonyms=True)
        entries = {one.name: one for one in result.configs}
        assert synonyms(entries["respool.flush"]) == [("respool.flush", "interval", FROM_DEFAULT)]
        assert entries["respool.flush.interval.ms"].value == "5"


@every_version
def test_a_groups_settings_are_its_own_or_those_of_all_groups(
    start_broker: StartBroker, version: int
) -> None:
    broker = start_broker(group_consumer_session_timeout_ms=46_000)
    broker.set_for_group("riders", {"consumer.session.timeout.ms": "50000"})

    riders, others, nobody = ask(
        broker, version, (GROUP, "riders"), (GROUP, "others"), (GROUP, ""), include_synonyms=True
    )

    told = {one.name: one for one in riders.configs}
    assert set(told) == set(GROUP_RULES)
    assert not any(one.read_only for one in riders.configs)
    name, of_all = "consumer.session.timeout.ms", "group.consumer.session.timeout.ms"
    static = [(of_all, "46000", FROM_SETTINGS), (of_all, "45000", FROM_DEFAULT)]
    assert synonyms(told[name]) == [(name, "50000", FROM_GROUP), *static]
    assert (told[name].value, told[name].config_source) == ("50000", FROM_GROUP)
    told = {one.name: one for one in others.configs}
    assert (told[name].value, synonyms(told[name])) == ("46000", static)
    assert told["consumer.heartbeat.interval.ms"].value == "5000"
    assert (nobody.error_code, nobody.configs) == (INVALID_REQUEST, ())


@every_version
def test_each_resource_is_answered_for_in_the_order_of_the_request(
    running_broker: RunningBroker, version: int
) -> None:
    running_broker.create_topic("rides")

    results = ask(
        running_broker,
        version,
        (TOPIC, "nobody"),
        (TOPIC, "a b"),
        (BROKER, "2"),
        (BROKER, "one"),
        (LOGGER, "1"),
        (99, "rides"),
        (TOPIC, "rides"),
    )

    assert [one.error_code for one in results] == [
        UNKNOWN_TOPIC,
        INVALID_TOPIC,
        INVALID_REQUEST,
        INVALID_REQUEST,
        INVALID_REQUEST,
        INVALID_REQUEST,
        0,
    ]
    assert all(one.error_message and not one.configs for one in results[:-1])


@every_version
def test_a_secret_is_never_told(start_broker: StartBroker, version: int) -> None:
    broker = start_broker(etcd="localhost", etcd_user="u", etcd_password="hunter2")

    (result,) = ask(broker, version, (BROKER, "1"), include_synonyms=True)

    (entry,) = [one for one in result.configs if one.name == "respool.etcd.password"]
    assert entry.is_sensitive
    assert entry.value is None
    assert [one.value for one in entry.synonyms] == [None, None]
    assert "hunter2" not in repr(result)


def test_yes_and_no_are_told_as_kafka_writes_them(running_broker: RunningBroker) -> None:
    running_broker.create_topic("plain")
    running_broker.create_topic("risky", unclean_leader_election_enable="TRUE")
    told = []
    for name in ("plain", "risky"):
        (result,) = running_broker.ask(
            Api.DESCRIBE_CONFIGS,
            4,
            resources=[
                {
                    "resource_type": 2,
                    "resource_name": name,
                    "configuration_keys": ["unclean.leader.election.enable"],
                }
            ],
            include_synonyms=False,
            include_documentation=False,
        ).results
        told += [(one.value, one.config_type) for one in result.configs]
    boolean = 1
    assert told == [("false", boolean), ("true", boolean)]
    rules = {name: one.rules for name, one in running_broker.broker.catalog.view().topics.items()}
    assert not rules["plain"].is_unclean_allowed
    assert rules["risky"].is_unclean_allowed


@every_version
def test_a_list_that_is_too_long_for_an_old_version_keeps_nobody_from_the_others(
    running_broker: RunningBroker, version: int
) -> None:
    """Texts are at most 32,767 bytes there."""
    long = ",".join(f"{number}:1" for number in range(6_000))
    throttled = "leader.replication.throttled.replicas"
    running_broker.create_topic("rides", leader_replication_throttled_replicas=long)

    (result,) = ask(running_broker, version, (TOPIC, "rides"), include_synonyms=True)

    entries = {one.name: one for one in result.configs}
    assert result.error_code == 0
    assert not entries[throttled].is_sensitive
    told = None if version < 4 else long
    assert entries[throttled].value == told
    assert synonyms(entries[throttled])[0] == (throttled, told, FROM_TOPIC)
    assert entries["retention.ms"].value == "604800000"


def test_the_flush_that_follows_from_kafkas_settings_is_shown_as_a_default(
    start_broker: StartBroker,
) -> None:
    """A tool that compares what it has set with what is shown must not see a setting of somebody else."""
    broker = start_broker(topic={"respool.flush": "os"})
    broker.create_topic("rides", flush_ms="70")
    broker.create_topic("plain")

    told = {}
    for name in ("rides", "plain"):
        (result,) = ask(broker, 4, (TOPIC, name), include_synonyms=True)
        told[name] = {one.name: one for one in result.configs}

    assert synonyms(told["rides"]["flush.ms"]) == [
        ("flush.ms", "70", FROM_TOPIC),
        ("log.flush.interval.ms", "9223372036854775807", FROM_DEFAULT),
    ]
    assert synonyms(told["rides"]["respool.flush"]) == [("respool.flush", "interval", FROM_DEFAULT)]
    assert synonyms(told["rides"]["respool.flush.interval.ms"])[0][1] == "70"
    assert synonyms(told["plain"]["respool.flush"])[0] == ("respool.flush", "os", FROM_SETTINGS)


def test_the_flush_that_follows_from_the_brokers_defaults_is_shown_too(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(topic={"flush.ms": "70"})
    broker.create_topic("rides")

    for resource in ((TOPIC, "rides"), (BROKER, "1")):
        (result,) = ask(broker, 4, resource, include_synonyms=True)
        told = {one.name: one for one in result.configs}
        assert told["respool.flush"].value == "interval"
        assert synonyms(told["respool.flush"]) == [("respool.flush", "interval", FROM_DEFAULT)]


def test_settings_without_effect_are_shown_and_say_so(running_broker: RunningBroker) -> None:
    running_broker.create_topic("rides", remote_storage_enable="false")

    (result,) = ask(running_broker, 4, (TOPIC, "rides"), include_documentation=True)

    told = {one.name: one for one in result.configs}
    tiered = told["remote.storage.enable"]
    assert (tiered.value, tiered.config_source, tiered.config_type) == (
        "false",
        FROM_TOPIC,
        BOOLEAN,
    )
    assert "Whether closed segments are archived" in tiered.documentation
    assert told["local.retention.ms"].value == "-2"
    assert told["local.retention.ms"].config_source == FROM_DEFAULT
    assert told["preallocate"].value == "false"
