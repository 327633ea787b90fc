"""Transient errors of a partition, a full disk and too many open files: each is logged once, not at every retry."""

import logging

from respool.model.errors import DiskFull, HandlesExhausted
from respool.model.ids import TopicPartition

logger = logging.getLogger(__name__)


class TransientErrors:
    def __init__(self, name: TopicPartition) -> None:
        self._name = name
        # True if the last append found the disk full.
        self._is_short_of_room = False
        # True from an operation that found no free file handle until the next append.
        self._is_short_of_handles = False

    def on_disk_full(self, error: DiskFull) -> None:
        if not self._is_short_of_room:
            logger.error("%s: appends are refused, the disk is full: %s", self._name, error)
            self._is_short_of_room = True

    def on_handles_exhausted(self, error: HandlesExhausted) -> None:
        if not self._is_short_of_handles:
            logger.error(
                "%s: %s. Raise the limit of open files (ulimit -n); it is tried again.",
                self._name,
                error,
            )
            self._is_short_of_handles = True

    def on_appended(self) -> None:
        if self._is_short_of_room:
            logger.info("%s: there is room again", self._name)
        self._is_short_of_room = self._is_short_of_handles = False
