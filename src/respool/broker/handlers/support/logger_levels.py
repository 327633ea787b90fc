"""The levels of a broker's loggers in the config APIs (KIP-412): they act at once, and a restart forgets them."""

from collections.abc import Iterator
from typing import Any

from respool.broker.broker import Broker
from respool.broker.handlers.support.config_entries import ConfigEntry, Source, ValueType
from respool.broker.handlers.support.config_resources import Operation
from respool.model.errors import InvalidConfig, InvalidRequest
from respool.ports.log_levels import LEVELS, ROOT, LogLevels


def logger_entries(name: str, broker: Broker) -> Iterator[ConfigEntry]:
    """Every logger of this broker with the level in force; its own, or that of the logger above it."""
    for logger, level in _levels_of(name, broker).levels().items():
        yield ConfigEntry(
            name=logger,
            value=level,
            read_only=False,
            synonyms=(),
            type=ValueType.UNKNOWN,
            doc=None,
            own_source=Source.BROKER_LOGGER,
        )


def change_log_levels(resource: Any, broker: Broker, *, validate_only: bool) -> None:
    """Change all of the resource's loggers, or none.

    Raises:
        InvalidRequest: it names another broker, or an operation that loggers do not have.
        InvalidConfig: there is no such logger or level.
    """
    log_levels = _levels_of(resource.resource_name, broker)
    loggers = log_levels.levels()
    for config in resource.configs:
        _check(config, loggers)
    if validate_only:
        return
    for config in resource.configs:
        is_unset = config.config_operation == Operation.DELETE
        log_levels.set_level(config.name, None if is_unset else config.value)


def _levels_of(name: str, broker: Broker) -> LogLevels:
    # An empty name, which means all brokers elsewhere, names none here: levels are not stored.
    if name != str(broker.id):
        raise InvalidRequest(f"Unexpected broker id, expected {broker.id} but received {name!r}")
    if broker.world.log_levels is None:
        raise InvalidRequest("the loggers of this process are not this broker's")
    return broker.world.log_levels


def _check(config: Any, loggers: object) -> None:
    operation = config.config_operation
    if operation not in (Operation.SET, Operation.DELETE):
        known = operation in tuple(Operation)
        what = Operation(operation).name if known else f"unknown operation {operation}"
        raise InvalidRequest(
            f"{config.name}: {what} is not allowed for loggers: set or delete a level"
        )
    assert isinstance(loggers, dict)
    if config.name not in loggers:
        raise InvalidConfig(f"Logger {config.name} does not exist!")
    if operation == Operation.DELETE:
        if config.name == ROOT:
            raise InvalidRequest(f"Removing the log level of the {ROOT} logger is not allowed")
    elif config.value is None:
        raise InvalidRequest(f"no value given for {config.name}")
    elif config.value not in LEVELS:
        raise InvalidConfig(
            f"Cannot set the log level of {config.name} to {config.value} as it is not a supported log level. "
            f"Valid log levels are {', '.join(LEVELS)}"
        )
