"""The levels of a broker's loggers: asked for by DescribeConfigs, and changed by IncrementalAlterConfigs."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from broker.handlers.configs.test_alter_configs import (
    APPEND,
    DELETE,
    INVALID_CONFIG,
    INVALID_REQUEST,
    LOGGER,
    SET,
    SUBTRACT,
    Change,
    ask,
    every_incremental_version,
    every_version,
    resource,
)
from broker.handlers.configs.test_describe_configs import ask as describe
from broker.running_broker import RunningBroker
from respool.wire.api_table import Api

LISTENER = "respool.server.listener"
FROM_LOGGER = 6


class Levels:
    def __init__(self) -> None:
        self.set = {"root": "INFO", LISTENER: "WARN"}

    def levels(self) -> Mapping[str, str]:
        return dict(self.set)

    def set_level(self, logger: str, level: str | None) -> None:
        self.set[logger] = level or self.set["root"]


@pytest.fixture
def levels(running_broker: RunningBroker) -> Levels:
    levels = Levels()
    running_broker.broker.world = replace(running_broker.broker.world, log_levels=levels)
    return levels


def alter(broker: RunningBroker, version: int, *changes: Change, **options: Any) -> int:
    (code,) = ask(
        broker, Api.INCREMENTAL_ALTER_CONFIGS, version, resource(LOGGER, "1", *changes), **options
    )
    return code


@pytest.mark.parametrize("version", [1, 4])
def test_every_logger_is_told_with_its_level(
    running_broker: RunningBroker, levels: Levels, version: int
) -> None:
    (result,) = describe(running_broker, version, (LOGGER, "1"), include_synonyms=True)

    assert {one.name: one.value for one in result.configs} == levels.set
    for one in result.configs:
        assert (one.config_source, one.read_only, one.is_sensitive) == (FROM_LOGGER, False, False)
        assert one.synonyms == ()


def test_only_a_brokers_own_loggers_are_told(running_broker: RunningBroker, levels: Levels) -> None:
    for name in ("", "2", "one"):
        (result,) = describe(running_broker, 4, (LOGGER, name))
        assert (result.error_code, result.configs) == (INVALID_REQUEST, ())


@every_incremental_version
def test_levels_are_set_and_unset_at_once_and_forgotten_by_a_restart(
    running_broker: RunningBroker, levels: Levels, version: int
) -> None:
    changes: list[Change] = [("root", "ERROR"), (LISTENER, "TRACE")]
    assert alter(running_broker, version, *changes, validate_only=True) == 0
    assert levels.set == {"root": "INFO", LISTENER: "WARN"}

    assert alter(running_broker, version, *changes) == 0
    assert levels.set == {"root": "ERROR", LISTENER: "TRACE"}
    assert alter(running_broker, version, (LISTENER, None, DELETE)) == 0
    assert levels.set == {"root": "ERROR", LISTENER: "ERROR"}
    assert running_broker.broker.image.stored_broker_overrides == {}


@every_incremental_version
@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("respool.no.such", "INFO", SET), INVALID_CONFIG),
        (("kafka.server", None, DELETE), INVALID_CONFIG),
        ((LISTENER, "info", SET), INVALID_CONFIG),
        ((LISTENER, "WARNING", SET), INVALID_CONFIG),
        ((LISTENER, None, SET), INVALID_REQUEST),
        (("root", None, DELETE), INVALID_REQUEST),
        ((LISTENER, "INFO", APPEND), INVALID_REQUEST),
        ((LISTENER, "INFO", SUBTRACT), INVALID_REQUEST),
        ((LISTENER, "INFO", 9), INVALID_REQUEST),
    ],
)
def test_one_bad_change_keeps_all_levels_as_they_were(
    running_broker: RunningBroker, levels: Levels, version: int, change: Change, code: int
) -> None:
    before = dict(levels.set)
    name = "root" if change[0] != "root" else LISTENER
    assert alter(running_broker, version, (name, "FATAL"), change) == code
    assert levels.set == before


@every_version
def test_the_old_alter_configs_changes_no_levels(
    running_broker: RunningBroker, levels: Levels, version: int
) -> None:
    wanted = resource(LOGGER, "1", (LISTENER, "INFO"))
    assert ask(running_broker, Api.ALTER_CONFIGS, version, wanted) == [INVALID_REQUEST]


def test_a_broker_without_loggers_of_its_own_says_so(running_broker: RunningBroker) -> None:
    assert alter(running_broker, 1, ("root", "INFO")) == INVALID_REQUEST
    (result,) = describe(running_broker, 4, (LOGGER, "1"))
    assert "not this broker's" in result.error_message
