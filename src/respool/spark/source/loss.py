"""Messages that should have been read and are gone: an error that says which, or a warning; `failOnDataLoss` says."""

import logging
from collections import deque
from dataclasses import dataclass

from respool.model.errors import RespoolError

_log = logging.getLogger("respool.spark")
# What this process has warned of; told once.
_told: deque[str] = deque(maxlen=100)


class DataLost(RespoolError):
    """Messages are gone that were not read. The message names the place, and the option to go on without them."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Can be sent to other processes."""

    fails: bool

    def report(self, what: str, *, instead: str, cause: Exception | None = None) -> None:
        """`what` is gone; `instead` is how it goes on if it may.

        Raises:
            DataLost: it may not.
        """
        if self.fails:
            raise DataLost(
                f"{what}. With the option failOnDataLoss = false the query goes on: {instead}"
            ) from cause
        if what not in _told:
            # A stream comes by here with each micro-batch.
            _told.append(what)
            _log.warning("%s; failOnDataLoss is false, so: %s", what, instead)
