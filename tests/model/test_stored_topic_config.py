"""What a broker does with settings that it does not understand: it keeps all, and promises no less."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.model.config_rules import INT_MAX, LONG_MAX
from respool.model.stored_topic_config import StoredTopicConfig, understood
from respool.model.topic_config import CONFIG_RULES, CleanupPolicy, Flush, TopicConfig

BASE = TopicConfig.parse({"retention.ms": "1000", "max.compaction.lag.ms": "3600000"})
DAY = "86400000"


def read(**overrides: str) -> TopicConfig:
    texts = {name.replace("_", "."): text for name, text in overrides.items()}
    return StoredTopicConfig.read(texts, base=BASE).config


def test_what_is_understood_is_read_as_ever() -> None:
    texts = {"cleanup.policy": "compact", "min.insync.replicas": "2"}
    found = StoredTopicConfig.read(texts, base=BASE)
    assert found.config == TopicConfig.parse(texts, base=BASE)
    assert found.complaints == ()


def test_settings_that_do_not_go_together_keep_all_others() -> None:
    """Once they meant the defaults: retention by time for what was compacted, and a single replica."""
    found = StoredTopicConfig.read(
        {
            "cleanup.policy": "compact",
            "min.compaction.lag.ms": DAY,
            "min.insync.replicas": "2",
        },
        base=BASE,
    )
    assert found.config.cleanup_policy == (CleanupPolicy.COMPACT,)
    assert found.config.min_insync_replicas == 2
    assert found.config.min_compaction_lag_ms == int(DAY)
    assert found.config.max_compaction_lag_ms == int(DAY)
    (complaint,) = found.complaints
    assert "max.compaction.lag.ms = 3600000 is not kept to" in complaint


@pytest.mark.parametrize(
    "name",
    [
        "cleanup.policy",
        "retention.ms",
        "retention.bytes",
        "min.compaction.lag.ms",
        "delete.retention.ms",
    ],
)
def test_nothing_is_deleted_for_a_value_that_is_not_understood(name: str) -> None:
    config = read(**{name: "by the moon", "segment.bytes": "2048"})
    assert (config.retention_ms, config.retention_bytes) == (-1, -1)
    assert config.min_compaction_lag_ms == LONG_MAX
    assert config.segment_bytes == 2048


@pytest.mark.parametrize(
    ("text", "policy"), [("compact,moon", "compact"), ("moon", "delete"), ("delete,moon", "delete")]
)
def test_records_need_keys_where_they_are_compacted_one_day(text: str, policy: str) -> None:
    assert str(read(cleanup_policy=text).cleanup_policy) == policy


def test_no_less_is_promised_for_a_value_that_is_not_understood() -> None:
    assert read(min_insync_replicas="most").min_insync_replicas == INT_MAX
    assert read(respool_flush="soon").respool_flush is Flush.ALWAYS
    assert not read(unclean_leader_election_enable="maybe").unclean_leader_election_enable


def test_each_that_is_not_understood_is_complained_of() -> None:
    texts = {"retention.ms": "long", "some.new": "x", "segment.bytes": "2048"}
    complaints = StoredTopicConfig.read(texts, base=BASE).complaints
    assert [one.split(":")[0] for one in complaints] == [
        "retention.ms",
        "Unknown topic config name",
    ]
    assert understood(texts) == {"segment.bytes": "2048"}


@given(
    overrides=st.dictionaries(
        st.sampled_from([*CONFIG_RULES, "some.new"]),
        st.sampled_from(["0", "1", "-1", "5000", "true", "compact", "0:1", "*", "moon", ""]),
    )
)
def test_whatever_is_stored_can_be_read(overrides: dict[str, str]) -> None:
    config = StoredTopicConfig.read(overrides, base=BASE).config
    assert config.min_compaction_lag_ms <= config.max_compaction_lag_ms
    assert TopicConfig.parse(config.as_text) == config
