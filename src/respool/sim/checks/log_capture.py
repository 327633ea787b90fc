"""Captures the log of simulated brokers."""

import logging
from typing import Self

from respool.sim.disk.disk_faults import ProcessGone
from respool.sim.runtime.sim_loop import SimLoop


class LogCapture(logging.Handler):
    """Collects log records with an exception: failures that the code does not expect."""

    def __init__(self, loop: SimLoop) -> None:
        super().__init__(logging.WARNING)
        self.heard: list[str] = []
        self._loop = loop
        self._logger = logging.getLogger("respool")

    def __enter__(self) -> Self:
        self._logger.addHandler(self)
        self._was_propagating, self._logger.propagate = self._logger.propagate, False
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
        self._logger.propagate = self._was_propagating

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self._loop.trace.tell(self._loop.time(), f"log: {text}")
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, ProcessGone):
            self.heard.append(f"{text}: {error!r}")
