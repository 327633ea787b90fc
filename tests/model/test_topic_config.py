import pytest

from respool.model.coordinator_settings import parse_defaults
from respool.model.errors import InvalidConfig
from respool.model.topic_config import (
    AT_CREATION_ONLY,
    CONFIG_RULES,
    CleanupPolicy,
    CompressionType,
    Flush,
    TimestampType,
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
        ("retentoin.ms", "Unknown topic config name: retentoin.ms; did you mean retention.ms?"),
        ("segment.byte", "did you mean segment.bytes?"),
        ("xyzzy", "^Unknown topic config name: xyzzy$"),
        ("retention.ms" + "s" * 100_000, r"^Unknown topic config name: retention.mss{52}\.\.\.$"),
        ("two\nlines", r"^Unknown topic config name: 'two\\nlines'$"),
    ],
    ids=["swapped", "short", "nothing alike", "too long to look for", "not printable"],
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
        ("cleanup.policy", "compact,"),
        ("compression.gzip.level", "0"),
        ("compression.gzip.level", "10"),
        ("compression.gzip.level", "-2"),
        ("compression.lz4.level", "0"),
        ("compression.lz4.level", "18"),
        ("compression.zstd.level", "23"),
        ("compression.zstd.level", "-131073"),
        ("flush.messages", "0"),
        ("flush.messages", "2"),
        ("flush.messages", "10000"),
        ("flush.ms", "0"),
        ("flush.ms", "-1"),
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
        ("", [], False, False),
        ("  ", [], False, False),
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


# Kafka 4.3's topic settings and their defaults; there are 33, and one that is deprecated.
KAFKA_4_3 = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.downconversion.enable": "true",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}


def test_every_setting_of_kafka_4_3_is_known_with_its_default() -> None:
    assert len(KAFKA_4_3) == 33 + 1
    ours = {name: text for name, text in TopicConfig().as_text.items() if "respool" not in name}
    assert ours == {**KAFKA_4_3, "errors.deadletterqueue.group.enable": "false"}
    assert TopicConfig.parse(KAFKA_4_3) == TopicConfig()


def test_any_negative_retention_size_is_no_limit_as_in_kafka() -> None:
    config = TopicConfig.parse({"retention.bytes": "-7"})
    assert config.as_text["retention.bytes"] == "-7"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("compression.gzip.level", "-1"),
        ("compression.gzip.level", "1"),
        ("compression.gzip.level", "9"),
        ("compression.lz4.level", "1"),
        ("compression.lz4.level", "17"),
        ("compression.zstd.level", "-131072"),
        ("compression.zstd.level", "22"),
    ],
)
def test_compression_levels_have_kafkas_range(name: str, text: str) -> None:
    assert TopicConfig.parse({name: text}).as_text[name] == text


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


def test_topics_with_delays_have_the_brokers_time_unless_told_otherwise() -> None:
    config = TopicConfig.parse({"respool.delay": "true"})
    assert config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
    told = {"respool.delay": "true", "message.timestamp.type": "CreateTime"}
    assert TopicConfig.parse(told).message_timestamp_type is TimestampType.CREATE_TIME


def test_compacted_topics_have_no_delays() -> None:
    with pytest.raises(InvalidConfig, match="does not go with cleanup"):
        TopicConfig.parse({"respool.delay": "true", "cleanup.policy": "compact,delete"})


@pytest.mark.parametrize("name", sorted(AT_CREATION_ONLY))
def test_what_is_set_at_creation_has_no_default(name: str) -> None:
    other = {"respool.delay": "true", "respool.delay.levels": "1s"}.get(name, "7")
    with pytest.raises(InvalidConfig, match=f"{name} has no default"):
        parse_defaults({name: other})
    assert parse_defaults(TopicConfig().as_text) == TopicConfig()
