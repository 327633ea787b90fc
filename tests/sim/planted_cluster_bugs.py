"""Mistakes that clusters have made, to be made again on purpose. See `planted_bugs.py` for those of a broker alone.

Most are rules of `replication/rules.py` that do not hold for a while; the others spoil what joins brokers together.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from respool.replication.rules import ALL_RULES

Plant = Callable[[pytest.MonkeyPatch], None]


@contextmanager
def without_rule(name: str) -> Iterator[None]:
    """Everyone has the same rules, and has had since it was imported: so they are changed in place."""
    assert getattr(ALL_RULES, name) is True
    object.__setattr__(ALL_RULES, name, False)
    try:
        yield
    finally:
        object.__setattr__(ALL_RULES, name, True)
