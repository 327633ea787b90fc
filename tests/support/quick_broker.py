"""A broker in this process, for tests that only talk to it: many times quicker there than `respool serve` as a child.

What is proved about the process itself (uvloop, signals, files, kills) stays with `BrokerProcess`.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from respool.testing import Broker
from support.broker_process import BrokerMisbehaved

_TROUBLE = re.compile(
    r" (ERROR|CRITICAL) |^Traceback |Task exception was never retrieved", re.MULTILINE
)


@contextmanager
def quick_broker(
    settings: Mapping[str, Any] | None = None, *, data: Path | None = None
) -> Iterator[Broker]:
    """It must not have logged an error when the tests are over, as a `BrokerProcess` must not."""
    with Broker(settings=settings, data=data) as broker:
        yield broker
        if _TROUBLE.search(broker.log):
            raise BrokerMisbehaved(f"the broker logged an error:\n{broker.log[-8000:]}")
