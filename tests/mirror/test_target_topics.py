"""What a topic that cannot be made at the target is told to be."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeAlias

import pytest

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import Code, refused
from respool.client.kafka.configs import ConfigResource, ConfigSetting, ConfigSource
from respool.mirror.target_topics import MirrorsUnsupported, TargetTopics
from respool.model.operator_errors import OperatorError

Make: TypeAlias = Callable[[str], None]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Make:
    """Create the topic at a target that refuses its configs with these words."""

    def describe(_: Cluster, __: ConfigResource, names: list[str]) -> Any:
        entry = ConfigSetting(name="segment.bytes", value="14", source=ConfigSource.TOPIC)
        return {name: {entry.name: entry} for name in names}

    def make(words: str) -> None:
        def refuse(*_: object, **__: object) -> None:
            raise refused("creating topic 'rides'", Code.invalid_config, words)

        monkeypatch.setattr("respool.mirror.target_topics.create_topic", refuse)
        TargetTopics(Cluster("x:1"), Cluster("10.1.0.1:9092")).create("rides", partitions=6)

    monkeypatch.setattr("respool.mirror.target_topics.describe_configs", describe)
    return make


def test_settings_of_kafka_that_respool_refuses_are_left_out_and_do_not_stop_the_mirror(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at_source = {
        "cleanup.policy": "compact",
        "compression.type": "gzip",
        "compression.gzip.level": "9",
        "errors.deadletterqueue.group.enable": "true",
        "flush.messages": "10000",
        "flush.ms": "1000",
        "local.retention.ms": "60000",
        "message.downconversion.enable": "true",
        "preallocate": "true",
        "remote.log.copy.disable": "false",
        "remote.storage.enable": "true",
        "retention.ms": "1000",
        "segment.bytes": "14",
        "some.vendors": "1",
    }

    def describe(_: Cluster, __: ConfigResource, names: list[str]) -> Any:
        entries = {
            key: ConfigSetting(name=key, value=value, source=ConfigSource.TOPIC)
            for key, value in at_source.items()
        }
        return dict.fromkeys(names, entries)

    created: dict[str, str] = {}

    def create(*_: object, configs: dict[str, str], **__: object) -> None:
        created.update(configs)

    monkeypatch.setattr("respool.mirror.target_topics.describe_configs", describe)
    monkeypatch.setattr("respool.mirror.target_topics.create_topic", create)
    topics = TargetTopics(Cluster("x:1"), Cluster("y:1"))
    topics.create("rides", partitions=6)

    assert created == {
        "cleanup.policy": "compact",
        "compression.type": "gzip",
        "compression.gzip.level": "9",
        "errors.deadletterqueue.group.enable": "true",
        "respool.mirror": "true",
        "retention.ms": "1000",
    }
    # The target decides about flushing and its archive, and what has no effect is not worth a word.
    assert topics.left_out["rides"] == [
        "preallocate",
        "segment.bytes",
        "some.vendors",
    ]


@pytest.mark.parametrize(
    ("setting", "is_refused"),
    [("respool.mirror", False), ("respool.view.of", False), ("segment.bytes", True)],
)
def test_a_target_whose_first_topic_is_a_view_supports_mirrors(
    monkeypatch: pytest.MonkeyPatch, setting: str, is_refused: bool
) -> None:
    def describe(_: Cluster, __: ConfigResource, names: list[str]) -> Any:
        entry = ConfigSetting(name=setting, value="x", source=ConfigSource.TOPIC)
        return {name: {entry.name: entry} for name in names}

    monkeypatch.setattr("respool.mirror.target_topics.describe_configs", describe)
    monkeypatch.setattr(Cluster, "refresh_all", lambda _: {"rides.v.paid": None})
    topics = TargetTopics(Cluster("x:1"), Cluster("10.1.0.1:9092"))
    with pytest.raises(MirrorsUnsupported) if is_refused else nullcontext():
        topics.check_target()


def test_a_broker_that_knows_no_mirrors_is_told(make: Make) -> None:
    with pytest.raises(MirrorsUnsupported, match="not a Respool broker"):
        make("Unknown topic config name: respool.mirror")


def test_a_value_that_the_target_refuses_is_told_and_how_to_do_without(make: Make) -> None:
    with pytest.raises(OperatorError) as failed:
        make("segment.bytes=14: at least 1024")
    assert not isinstance(failed.value, MirrorsUnsupported)
    assert "segment.bytes=14: at least 1024" in failed.value.message
    assert (
        "respool topic create rides --partitions 6 --set respool.mirror=true --broker 10.1.0.1:9092"
        in failed.value.hint
    )
