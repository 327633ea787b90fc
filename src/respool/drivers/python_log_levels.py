"""The levels of Python's loggers, for `ports/log_levels.py`.

Loggers are named for modules and their packages: `respool.server.listener`, `respool.server`, `respool`. A level is for
the logger and everything below it that has none of its own.
"""

import logging
from collections.abc import Mapping

from respool.ports.log_levels import ROOT

_PACKAGE = "respool"
_NUMBERS: Mapping[str, int] = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "OFF": logging.CRITICAL + 10,
}


class PythonLogLevels:
    """Loggers of libraries have the level of `root`."""

    def levels(self) -> Mapping[str, str]:
        # Also packages without a logger of their own, to which Python has placeholders.
        names = [
            name
            for name in list(logging.root.manager.loggerDict)
            if name == _PACKAGE or name.startswith(f"{_PACKAGE}.")
        ]
        return {name: _level_of(name) for name in (ROOT, *sorted(names))}

    def set_level(self, logger: str, level: str | None) -> None:
        _logger(logger).setLevel(logging.NOTSET if level is None else _NUMBERS[level])


def _level_of(name: str) -> str:
    number: int = _in_force(name)
    return next((level for level, least in _NUMBERS.items() if number <= least), "OFF")


def _in_force(name: str) -> int:
    """Not by `logging.getLogger`: asking must not create loggers."""
    while name != ROOT:
        found = logging.root.manager.loggerDict.get(name)
        if isinstance(found, logging.Logger) and found.level:
            return found.level
        name = name.rpartition(".")[0] or ROOT
    return logging.root.level


def _logger(name: str) -> logging.Logger:
    return logging.root if name == ROOT else logging.getLogger(name)
