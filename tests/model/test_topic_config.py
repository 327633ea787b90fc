import pytest

from respool.model.errors import InvalidConfig
from respool.model.topic_config import (
    CONFIG_RULES,
    CleanupPolicy,
    CompressionType,
    Flush,
    TopicConfig,
)


def test_without_a_word_topics_keep_a_week_and_sync_before_they_answer() -> None:
    config = TopicConfig()
    assert config.retention_ms == 7 * 24 * 3600 * 1000
    assert config.respool_flush is Flush.ALWAYS
    assert config.compression_type is CompressionType.PRODUCER


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("retentoin.ms", "unknown topic setting 'retentoin.ms'; did you mean retention.ms?"),
        ("segment.byte", "did you mean segment.bytes?"),
        ("xyzzy", "unknown topic setting 'xyzzy'$"),
        ("retention.ms" + "s" * 100_000, "s'$"),
    ],
    ids=["swapped", "short", "nothing alike", "too long to look for"],
)
def test_a_misspelt_setting_is_guessed(name: str, words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        TopicConfig.parse({name: "1"})


def test_settings_are_read_under_kafkas_names_over_the_brokers_defaults() -> None:
    base = TopicConfig.parse({"retention.ms": "1000", "segment.bytes": "2048"})
    config = TopicConfig.parse({"segment.bytes": "4096"}, base=base)
    assert (config.retention_ms, config.segment_bytes) == (1000, 4096)


def test_every_setting_written_as_text_is_read_back_the_same() -> None:
    config = TopicConfig(retention_ms=5, compression_type=CompressionType.LZ4)
    assert TopicConfig.parse(config.as_text) == config
    assert set(config.as_text) == set(CONFIG_RULES)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-2"),
        ("retention.ms", "a week"),
        ("segment.bytes", "1"),
        ("segment.bytes", str(2**31)),
        ("compression.type", "brotli"),
        ("respool.flush", "never"),
        ("cleanup.policy", "shred"),
        ("cleanup.policy", ""),
        ("cleanup.policy", "compact,"),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("min.cleanable.dirty.ratio", "-0.1"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.cleanable.dirty.ratio", "half"),
        ("max.compaction.lag.ms", "0"),
        ("min.insync.replicas", "0"),
        ("no.such.setting", "1"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig, match=name.replace(".", r"\.")):
        TopicConfig.parse({name: value})


def test_every_setting_says_what_it_is_for() -> None:
    assert all(rule.doc.endswith(".") for rule in CONFIG_RULES.values())


@pytest.mark.parametrize(
    ("text", "policies", "is_compacted", "has_retention"),
    [
        ("delete", [CleanupPolicy.DELETE], False, True),
        ("compact", [CleanupPolicy.COMPACT], True, False),
        ("compact,delete", [CleanupPolicy.COMPACT, CleanupPolicy.DELETE], True, True),
        (" delete , compact,delete", [CleanupPolicy.DELETE, CleanupPolicy.COMPACT], True, True),
    ],
)
def test_a_topic_may_be_compacted_and_deleted_from(
    text: str, policies: list[CleanupPolicy], is_compacted: bool, has_retention: bool
) -> None:
    config = TopicConfig.parse({"cleanup.policy": text})
    assert list(config.cleanup_policy) == policies
    assert (config.is_compacted, config.has_retention) == (is_compacted, has_retention)
    assert config.as_text["cleanup.policy"] == ",".join(policies)
    assert TopicConfig.parse(config.as_text) == config


def test_the_least_compaction_lag_is_not_above_the_greatest() -> None:
    TopicConfig.parse({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"})
    base = TopicConfig.parse({"max.compaction.lag.ms": "5"})
    with pytest.raises(InvalidConfig, match=r"min\.compaction\.lag\.ms = 6 is above"):
        TopicConfig.parse({"min.compaction.lag.ms": "6"}, base=base)


def test_segments_of_a_compacted_topic_are_finished_before_they_are_too_old_to_wait() -> None:
    texts = {"segment.ms": "1000", "max.compaction.lag.ms": "10"}
    assert TopicConfig.parse(texts).segment_age_ms_max == 1000
    texts["cleanup.policy"] = "compact"
    assert TopicConfig.parse(texts).segment_age_ms_max == 10
    assert TopicConfig.parse({**texts, "max.compaction.lag.ms": "2000"}).segment_age_ms_max == 1000
