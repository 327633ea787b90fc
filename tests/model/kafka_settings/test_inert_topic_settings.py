"""What the broker does not do is accepted if nobody asks for more, and refused with the reason if somebody does."""

import pytest

from respool.model.errors import InvalidConfig
from respool.model.kafka_settings.inert_topic_settings import INERT, REFUSED
from respool.model.topic_config import CONFIG_RULES, TopicConfig


@pytest.mark.parametrize("name", sorted(INERT))
def test_what_respool_does_anyway_is_accepted_and_shown(name: str) -> None:
    default = TopicConfig().as_text[name]
    config = TopicConfig.parse({name: f" {default.upper()} "})
    assert config.as_text[name] == default


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("preallocate", "true", "a segment's file grows with its records"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_reason(name: str, value: str, words: str) -> None:
    with pytest.raises(InvalidConfig, match=f"^{name}: .*{words}") as refused:
        TopicConfig.parse({name: value})
    assert "nknown" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("remote.storage.enable", "yes"),
        ("local.retention.ms", "-3"),
        ("local.retention.bytes", "many"),
        ("preallocate", ""),
        ("message.downconversion.enable", "1"),
    ],
)
def test_what_kafka_would_not_read_is_refused_as_in_kafka(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig, match=f"^{name}: ") as refused:
        TopicConfig.parse({name: value})
    assert "is refused" not in str(refused.value)


def test_the_deprecated_one_may_be_either() -> None:
    name = "message.downconversion.enable"
    assert TopicConfig.parse({name: "true"}).as_text[name] == "true"
    assert TopicConfig.parse({name: "false"}).as_text[name] == "false"


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_has_no_meaning_here_is_refused_by_name_and_never_called_unknown(name: str) -> None:
    assert name not in CONFIG_RULES
    with pytest.raises(InvalidConfig, match=f"^{name} is refused: {REFUSED[name][:20]}") as refused:
        TopicConfig.parse({name: "false"})
    assert "nknown" not in str(refused.value)
