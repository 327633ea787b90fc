"""The levels of the process's loggers, under Kafka's names: TRACE, DEBUG, INFO, WARN, ERROR, FATAL, OFF."""

from collections.abc import Mapping
from typing import Protocol

ROOT = "root"
LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL", "OFF")


class LogLevels(Protocol):
    def levels(self) -> Mapping[str, str]:
        """The level in force of every logger of the broker, and of `root`."""

    def set_level(self, logger: str, level: str | None) -> None:
        """Set the level of a logger in `levels`; None: that of the logger above it applies again."""
