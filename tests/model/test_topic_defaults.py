"""A broker's defaults of topic settings: their names, their units, and which of several places counts."""

import pytest

from respool.model.errors import InvalidConfig
from respool.model.ids import BrokerId
from respool.model.topic_config import CONFIG_RULES, WITHOUT_DEFAULT, Flush, TopicConfig
from respool.model.topic_defaults import (
    SAME_IN_CLUSTER,
    SETTING_OF_DEFAULT,
    TOPIC_DEFAULT_RULES,
    changed_defaults,
    defaults_for,
    names_of_default,
)

ONE, TWO = BrokerId(1), BrokerId(2)
HOUR_MS = 3_600_000


def test_every_topic_setting_that_can_have_a_default_has_a_brokers_name() -> None:
    assert set(SETTING_OF_DEFAULT.values()) == set(CONFIG_RULES) - WITHOUT_DEFAULT
    assert names_of_default("retention.ms") == (
        "log.retention.ms",
        "log.retention.minutes",
        "log.retention.hours",
    )
    assert names_of_default("segment.ms") == ("log.roll.ms", "log.roll.hours")
    assert names_of_default("compression.type") == ("compression.type",)
    assert {"min.insync.replicas", "respool.flush"} <= SAME_IN_CLUSTER


def test_the_finer_unit_takes_precedence_in_one_place() -> None:
    changed = {"log.retention.hours": "2", "log.roll.hours": "3"}
    assert changed_defaults(changed) == {
        "retention.ms": str(2 * HOUR_MS),
        "segment.ms": str(3 * HOUR_MS),
    }
    assert changed_defaults(changed | {"log.retention.ms": "5"})["retention.ms"] == "5"
    assert changed_defaults({"log.retention.minutes": "-1"}) == {"retention.ms": "-1"}
    # Throttles are no defaults of topics.
    assert changed_defaults({"leader.replication.throttled.rate": "5"}) == {}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("log.retention.hours", "x"),
        ("log.retention.hours", "-2"),
        # Kafka's brokers refuse it as well: it would delete everything.
        ("log.retention.hours", "0"),
        ("log.retention.minutes", "0"),
        ("log.retention.ms", "0"),
        ("log.retention.hours", str(2**31)),
        ("log.roll.hours", "0"),
        ("log.roll.jitter.hours", "-1"),
        ("log.segment.bytes", "1"),
    ],
)
def test_a_value_that_cannot_be_is_refused(name: str, text: str) -> None:
    with pytest.raises(InvalidConfig):
        TOPIC_DEFAULT_RULES[name].parse(text)


def test_what_is_changed_for_a_broker_goes_before_what_is_changed_for_all() -> None:
    static = TopicConfig(retention_ms=1, segment_bytes=4096)
    changed = {"": {"log.retention.ms": "2"}, "1": {"log.retention.hours": "1"}}
    assert defaults_for(ONE, changed, static=static).config == TopicConfig(
        retention_ms=HOUR_MS, segment_bytes=4096
    )
    assert defaults_for(TWO, changed, static=static).config.retention_ms == 2
    assert defaults_for(TWO, {}, static=static).config is static


def test_what_a_newer_version_has_changed_is_read_with_care() -> None:
    static = TopicConfig(retention_ms=1)
    changed = {
        "": {"log.retention.hours": "a while", "log.new.thing": "1", "compression.type": "x"}
    }
    read = defaults_for(ONE, changed, static=static)
    assert (read.config.retention_ms, read.config.compression_type) == (-1, "producer")
    assert len(read.complaints) == 2


def test_an_operator_does_not_rely_on_a_flush_that_a_broker_may_have_changed_for_itself() -> None:
    changed = {"": {"respool.flush": "always", "log.retention.ms": "2"}}
    static = TopicConfig(respool_flush=Flush.OS)
    read = defaults_for(None, changed, static=static).config
    assert (read.respool_flush, read.retention_ms) == (Flush.OS, 2)
    assert defaults_for(ONE, changed, static=static).config.respool_flush is Flush.ALWAYS
