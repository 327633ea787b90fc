"""What a topic that cannot be made at the target is told to be."""

from typing import Any, cast

import pytest

from respool.cli.kafka import Cluster, Setting
from respool.mirror.target_topics import MirrorsUnsupported, TargetTopics
from respool.model.operator_errors import OperatorError, UsageError


class Source:
    def settings(self, names: list[str]) -> dict[str, list[Setting]]:
        setting = Setting(name="segment.bytes", value="14", source="topic")
        return {name: [setting] for name in names}


class Target:
    broker = "10.1.0.1:9092"

    def __init__(self, words: str) -> None:
        self.words = words

    def create_topic(self, *_: Any, **__: Any) -> None:
        raise UsageError(self.words)


def make_at(target: Target) -> None:
    care = TargetTopics(cast(Cluster, Source()), cast(Cluster, target))
    care.create("rides", partitions=6)


def test_a_broker_that_knows_no_mirrors_is_told() -> None:
    with pytest.raises(MirrorsUnsupported, match="not a Respool broker"):
        make_at(Target("Unknown topic config name: respool.mirror"))


def test_a_value_that_the_target_refuses_is_told_and_how_to_do_without() -> None:
    with pytest.raises(OperatorError) as failed:
        make_at(Target("segment.bytes=14: at least 1024"))
    assert not isinstance(failed.value, MirrorsUnsupported)
    assert "segment.bytes=14: at least 1024" in failed.value.message
    assert (
        "respool topic create rides --partitions 6 --set respool.mirror=true --broker 10.1.0.1:9092"
        in failed.value.hint
    )
