"""A broker with a topic of three partitions, whose groups can be used at once."""

import pytest

from broker.group_client import start_with_groups
from broker.running_broker import RunningBroker, StartBroker


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    broker = start_with_groups(start_broker, share_coordinator_state_topic_partitions=2)
    broker.create_topic("orders", partitions=3)
    return broker
