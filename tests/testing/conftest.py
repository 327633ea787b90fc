"""A broker of each kind, and the few things tests do with a client."""

from collections.abc import Iterator

import pytest

from respool.testing import Broker


@pytest.fixture(params=["thread", "process"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """One in a thread, one in a process of its own: what holds for one holds for the other."""
    with Broker(mode=request.param) as running:
        yield running
