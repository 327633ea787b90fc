"""A day of rides, made once: enough of them for shares to be told."""

import pytest

from respool.rides.event_table import EventTable
from rides.making import all_events, plan


@pytest.fixture(scope="session")
def day() -> EventTable:
    return all_events(plan(rate=2.0))
