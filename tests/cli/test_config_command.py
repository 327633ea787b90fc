"""`respool config` on a broker: what was changed for it, for all brokers and for a group."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cli.running import Ended, Run
from respool.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(topics={"rides": 1}) as broker:
        yield broker


class Config:
    def __init__(self, run: Run, broker: Broker) -> None:
        self._run = run
        self._broker = broker

    def __call__(self, *words: str, code: int = 0) -> Ended:
        ended = self._run("config", *words, "--broker", self._broker.bootstrap)
        assert ended.code == code, ended.err
        return ended

    def settings(self, *words: str) -> dict[str, tuple[str, str]]:
        """Value and source by name."""
        document: dict[str, Any] = json.loads(self("describe", *words, "--json").out)
        return {one["name"]: (one["value"], one["source"]) for one in document["settings"]}

    def retention_of_rides(self) -> str:
        ended = self._run(
            "topic", "describe", "rides", "--json", "--broker", self._broker.bootstrap
        )
        (topic,) = json.loads(ended.out)["topics"]
        return next(str(one["value"]) for one in topic["settings"] if one["name"] == "retention.ms")


@pytest.fixture
def config(run: Run, broker: Broker) -> Iterator[Config]:
    """The broker is as it was afterwards."""
    config = Config(run, broker)
    before = config.settings("broker", "1", "--changed")
    yield config
    for target, source in ((("broker", "1"), "broker"), (("broker",), "brokers")):
        for name, (_, where) in config.settings(*target).items():
            if where == source:
                config("alter", *target, "--unset", name)
    assert config.settings("broker", "1", "--changed") == before


def test_a_default_that_is_changed_for_all_brokers_applies_to_topics_at_once(
    config: Config,
) -> None:
    before = config.retention_of_rides()
    config("alter", "broker", "--set", "log.retention.ms=30d")
    assert config.settings("broker") == {"log.retention.ms": ("2592000000", "brokers")}
    assert config.settings("broker", "1")["log.retention.ms"] == ("2592000000", "brokers")
    assert config.retention_of_rides() == "2592000000"
    config("alter", "broker", "--unset", "log.retention.ms")
    assert config.settings("broker") == {}
    assert config.retention_of_rides() == before


def test_a_brokers_own_value_goes_before_that_of_all_brokers(config: Config) -> None:
    config("alter", "broker", "--set", "message.max.bytes=2MiB")
    config("alter", "broker", "1", "--set", "message.max.bytes=1MiB")
    assert config.settings("broker", "1", "--changed")["message.max.bytes"] == (
        "1048576",
        "broker",
    )
    config("alter", "broker", "1", "--unset", "message.max.bytes")
    assert config.settings("broker", "1")["message.max.bytes"] == ("2097152", "brokers")


def test_a_group_has_settings_of_its_own(config: Config) -> None:
    default = config.settings("group", "riders")["consumer.session.timeout.ms"]
    assert default[1] == "default"
    config("alter", "group", "riders", "--set", "consumer.session.timeout.ms=60s")
    assert config.settings("group", "riders", "--changed") == {
        "consumer.session.timeout.ms": ("60000", "group")
    }
    assert config.settings("group", "others")["consumer.session.timeout.ms"] == default
    config("alter", "group", "riders", "--unset", "consumer.session.timeout.ms")
    assert config.settings("group", "riders")["consumer.session.timeout.ms"] == default


def test_the_table_says_what_can_be_changed_and_where_it_comes_from(config: Config) -> None:
    rows = [line.split("\t") for line in config("describe", "broker", "1").out.splitlines()]
    by_name = {name: (source, when) for name, _, source, when in rows}
    assert by_name["log.retention.ms"] == ("default", "any time")
    assert by_name["num.partitions"] == ("default", "at start")
    assert by_name["listeners"] == ("start", "at start")
    assert list(by_name) == sorted(by_name)
    changed = config("describe", "broker").err
    assert "nothing was changed for all brokers" in changed


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("alter", "broker", "1", "--set", "num.partitions=5"), 1, "read when a broker starts"),
        (("alter", "broker", "--set", "log.retention.ms=soon"), 2, "--set log.retention.ms"),
        (("alter", "broker", "--unset", "log.retentions.ms"), 2, "did you mean log.retention.ms?"),
        (("alter", "broker", "7", "--set", "log.retention.ms=1"), 3, "running brokers: 1"),
        (("describe", "broker", "7"), 3, "there is no broker 7"),
        (("describe", "broker", "one"), 2, "a broker's number is expected"),
        (("describe", "group"), 2, "which group?"),
        (("alter", "broker"), 2, "nothing to change"),
        (("alter", "broker", "--set", "a.ms=1", "--unset", "a.ms"), 2, "cannot be both"),
        (("alter", "topic", "rides", "--set", "a=1"), 2, "broker"),
    ],
)
def test_what_cannot_be_done_is_refused_and_changes_nothing(
    config: Config, words: tuple[str, ...], code: int, said: str
) -> None:
    before = config.settings("broker", "1")
    assert said in config(*words, code=code).err
    assert config.settings("broker", "1") == before


def test_a_change_is_told_to_programs_by_name(config: Config) -> None:
    words = ("alter", "broker", "1", "--set", "log.retention.ms=1d", "--json")
    assert json.loads(config(*words).out) == {
        "broker": 1,
        "set": ["log.retention.ms"],
        "unset": [],
    }
