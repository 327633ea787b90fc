"""A real broker inside a test: `with Broker() as broker:`. See docs/testing.md.

Importing this package is cheap. The broker's code is imported when the first broker starts.
"""

from respool.testing.broker import Broker
from respool.testing.broker_clock import BrokerClock
from respool.testing.errors import (
    BrokerClosed,
    BrokerDidNotStart,
    BrokerFailed,
    BrokerForked,
    BrokerNotRunning,
    BrokerRunning,
    BrokerUnresponsive,
    PortTaken,
    TestBrokerError,
    UnknownFault,
)
from respool.testing.faults import Fault, Faults

__all__ = [
    "Broker",
    "BrokerClock",
    "BrokerClosed",
    "BrokerDidNotStart",
    "BrokerFailed",
    "BrokerForked",
    "BrokerNotRunning",
    "BrokerRunning",
    "BrokerUnresponsive",
    "Fault",
    "Faults",
    "PortTaken",
    "TestBrokerError",
    "UnknownFault",
]
