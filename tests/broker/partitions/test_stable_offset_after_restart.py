"""What read_committed readers may have after the broker was gone for a moment."""

import pytest

from broker.running_broker import StartBroker
from broker.transaction_client import (
    Producer,
    last_stable_offset,
    read,
    restart,
    start_with_transactions,
)


@pytest.mark.parametrize("crash", [False, True])
def test_a_transaction_that_is_open_hides_none_that_ended_before(
    start_broker: StartBroker, crash: bool
) -> None:
    broker = start_with_transactions(start_broker)
    producer = Producer(broker)
    producer.write("rides", 0, b"paid")
    producer.commit()
    producer.write("rides", 0, b"open")
    stable = last_stable_offset(broker, "rides")
    restart(broker, crash=crash)
    assert last_stable_offset(broker, "rides") == stable == 2
    assert read(broker, "rides") == [b"paid"]
