"""flush.messages and flush.ms say what respool.flush says, and never something else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.model.config_rules import LONG_MAX
from respool.model.errors import InvalidConfig
from respool.model.stored_topic_config import StoredTopicConfig
from respool.model.topic_config import Flush, TopicConfig

OFF = str(LONG_MAX)


def config_of(base: TopicConfig | None = None, **overrides: str) -> TopicConfig:
    return TopicConfig.parse(named(**overrides), base=base)


def named(**overrides: str) -> dict[str, str]:
    return {name.replace("_", "."): text for name, text in overrides.items()}


def test_one_message_means_always() -> None:
    base = TopicConfig(respool_flush=Flush.OS)
    assert config_of(base, flush_messages="1").respool_flush is Flush.ALWAYS


def test_a_time_means_an_interval() -> None:
    config = config_of(flush_ms="250")
    assert (config.respool_flush, config.respool_flush_interval_ms) == (Flush.INTERVAL, 250)


@pytest.mark.parametrize("flush", list(Flush))
def test_the_maximum_changes_nothing(flush: Flush) -> None:
    base = TopicConfig(respool_flush=flush, respool_flush_interval_ms=7)
    assert config_of(base, flush_messages=OFF, flush_ms=OFF) == base


def test_what_is_synced_with_every_batch_is_synced_in_time() -> None:
    config = config_of(flush_messages="1", flush_ms="500")
    assert config.respool_flush is Flush.ALWAYS
    assert config == config_of(flush_messages="1", flush_ms="500", respool_flush="always")


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"flush_messages": "1", "respool_flush": "os"}, "means respool.flush = always, and .* os"),
        ({"flush_messages": "1", "respool_flush": "interval"}, "is set to interval: set one"),
        (
            {"flush_ms": "9", "respool_flush": "os"},
            "flush.ms = 9 means respool.flush = interval, .* os",
        ),
        ({"flush_ms": "9", "respool_flush": "always"}, "is set to always: set one of them"),
        (
            {"flush_ms": "9", "respool_flush_interval_ms": "8"},
            "flush.ms = 9 and respool.flush.interval.ms = 8 contradict",
        ),
    ],
)
def test_a_topic_that_contradicts_itself_is_refused(overrides: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        TopicConfig.parse(named(**overrides))


@pytest.mark.parametrize(
    "overrides",
    [
        {"flush_messages": "1", "respool_flush": "always"},
        {"flush_ms": "9", "respool_flush": "interval"},
        {"flush_ms": "9", "respool_flush_interval_ms": "9"},
        {"flush_messages": OFF, "flush_ms": OFF, "respool_flush": "os"},
        {"flush_messages": "1", "respool_flush_interval_ms": "8"},
    ],
)
def test_what_agrees_may_be_said_twice(overrides: dict[str, str]) -> None:
    TopicConfig.parse(named(**overrides))


def test_what_a_topic_says_wins_over_the_brokers_defaults() -> None:
    base = config_of(flush_ms="500")
    assert config_of(base, respool_flush="os").respool_flush is Flush.OS
    assert config_of(base, respool_flush="os").flush_ms == LONG_MAX
    assert config_of(base, respool_flush_interval_ms="70").respool_flush_interval_ms == 70
    assert config_of(base, retention_ms="1").respool_flush is Flush.INTERVAL
    base = TopicConfig(respool_flush=Flush.ALWAYS)
    assert config_of(base, flush_ms="500").respool_flush is Flush.INTERVAL


def test_kafkas_two_settings_hold_together_wherever_each_was_set() -> None:
    base = config_of(flush_messages="1", flush_ms="500")
    assert config_of(base, flush_ms="300").respool_flush is Flush.ALWAYS
    config = config_of(base, flush_messages=OFF)
    assert (config.respool_flush, config.respool_flush_interval_ms) == (Flush.INTERVAL, 500)


def test_stored_settings_that_contradict_each_other_sync_everything() -> None:
    """A newer broker, or a change of the broker's defaults, may have let them in."""
    overrides = named(flush_ms="9", respool_flush="os", retention_ms="5")
    found = StoredTopicConfig.read(overrides, base=TopicConfig())
    assert found.config.respool_flush is Flush.ALWAYS
    assert found.config.retention_ms == 5
    (complaint,) = found.complaints
    assert complaint.endswith("set one of them; it is always")


@pytest.mark.parametrize("name", ["flush_messages", "flush_ms"])
def test_a_stored_value_that_is_not_understood_syncs_everything(name: str) -> None:
    base = TopicConfig(respool_flush=Flush.OS)
    overrides = named(**{name: "100k", "respool_flush": "os"})
    assert StoredTopicConfig.read(overrides, base=base).config.respool_flush is Flush.ALWAYS


SOME = {
    "flush.messages": st.sampled_from(["1", OFF]),
    "flush.ms": st.sampled_from(["9", "8", OFF]),
    "respool.flush": st.sampled_from(list(map(str, Flush))),
    "respool.flush.interval.ms": st.sampled_from(["9", "8"]),
}
some_overrides = st.fixed_dictionaries({}, optional=SOME)


@given(broker=some_overrides, topic=some_overrides)
def test_what_is_shown_never_contradicts_itself(
    broker: dict[str, str], topic: dict[str, str]
) -> None:
    base = StoredTopicConfig.read(broker, base=TopicConfig()).config
    config = StoredTopicConfig.read(topic, base=base).config
    assert TopicConfig.parse(config.as_text) == config
