import pytest

from respool.model.errors import InvalidConfig
from respool.model.topic_config import CONFIG_RULES, CompressionType, Flush, TopicConfig


def test_without_a_word_topics_keep_a_week_and_sync_before_they_answer() -> None:
    config = TopicConfig()
    assert config.retention_ms == 7 * 24 * 3600 * 1000
    assert config.respool_flush is Flush.ALWAYS
    assert config.compression_type is CompressionType.PRODUCER


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
        ("min.insync.replicas", "0"),
        ("no.such.setting", "1"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig, match=name.replace(".", r"\.")):
        TopicConfig.parse({name: value})


def test_every_setting_says_what_it_is_for() -> None:
    assert all(rule.doc.endswith(".") for rule in CONFIG_RULES.values())
