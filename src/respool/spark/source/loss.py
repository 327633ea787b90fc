"""Lost messages that a read should return: reported as an error or as a warning, depending on `failOnDataLoss`."""

import logging
from collections import deque
from dataclasses import dataclass

from respool.model.errors import RespoolError

_log = logging.getLogger("respool.spark")
# What this process has already warned of.
_told: deque[str] = deque(maxlen=100)


class DataLost(RespoolError):
    """Messages were lost before they were read. The message names the partition, and the option to skip them."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Reports data loss according to `failOnDataLoss`. Can be pickled."""

    fails: bool

    def report(self, what: str, *, instead: str, cause: Exception | None = None) -> None:
        """Report that `what` is lost; `instead` says how the read continues, if allowed.

        Raises:
            DataLost: `failOnDataLoss` is set.
        """
        if self.fails:
            raise DataLost(
                f"{what}. With the option failOnDataLoss = false the query continues: {instead}"
            ) from cause
        if what not in _told:
            # A stream reports the same loss again with each micro-batch.
            _told.append(what)
            _log.warning("%s; failOnDataLoss is false, so: %s", what, instead)
