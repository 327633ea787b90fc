"""Ends other than a crash: a clean stop in the middle of a flood, and a second broker that must not begin."""

import signal

import pytest
from confluent_kafka import TopicPartition

from crash.conftest import StartBroker
from crash.flood import Flood
from support.broker_process import BrokerMisbehaved, BrokerProcess
from support.confluent_client import ConfluentClient, consumer
from support.message import Message
from support.topics import Topics

pytestmark = [pytest.mark.crash, pytest.mark.xdist_group("stop")]

CLEAN_MARKER = ".kafka_cleanshutdown"


def leader_epochs(broker: BrokerProcess, topic: str) -> list[int]:
    """The epoch that readers see; it goes up when a start had to recover."""
    reader = consumer(broker.address)
    (place,) = reader.offsets_for_times([TopicPartition(topic, 0, 0)], timeout=60)
    message = ConfluentClient().read_from(broker.address, (topic, 0), place.offset, count=1)
    reader.close()
    assert message
    content = (broker.data / f"{topic}-0" / "leader-epoch-checkpoint").read_text().split()
    return [int(epoch) for epoch in content[2::2]]


def test_a_stop_in_the_middle_of_a_flood_is_clean(start_broker: StartBroker) -> None:
    broker = start_broker()
    topic = Topics(broker.address).new("flooded", partitions=2)
    with Flood(broker.address, topic, partitions=2, producers=[{}, {}]) as flood:
        for _ in range(3):
            flood.wait_for_acknowledgements(200)
            broker.stop()
            assert (broker.data / CLEAN_MARKER).exists()
            broker.start()
            assert not (broker.data / CLEAN_MARKER).exists()
    assert [one.account.errors for one in flood.producers] == [[], []]
    flood.check(ConfluentClient().read(broker.address, flood.places))
    # Nothing was recovered: readers see the one leadership there ever was.
    assert leader_epochs(broker, topic) == [0]


def test_a_kill_is_not_clean_and_readers_can_tell(start_broker: StartBroker) -> None:
    broker = start_broker()
    topic = Topics(broker.address).new("topic")
    ConfluentClient().write(broker.address, (topic, 0), [Message(value=b"v")], idempotent=False)
    broker.kill()
    assert not (broker.data / CLEAN_MARKER).exists()
    broker.start()
    assert leader_epochs(broker, topic) == [0, 1]


def test_a_second_stop_signal_does_not_break_the_first(start_broker: StartBroker) -> None:
    broker = start_broker()
    topic = Topics(broker.address).new("flooded")
    with Flood(broker.address, topic, partitions=1, producers=[{}]) as flood:
        flood.wait_for_acknowledgements(100)
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
            broker.send_signal(number)
        assert broker.wait_for_end() == 0
        assert (broker.data / CLEAN_MARKER).exists()
        broker.start()
    flood.check(ConfluentClient().read(broker.address, flood.places))


def test_a_second_broker_on_the_same_folder_is_refused_and_the_first_goes_on(
    start_broker: StartBroker,
) -> None:
    broker = start_broker()
    topic = Topics(broker.address).new("topic")
    second = BrokerProcess(broker.data)
    with pytest.raises(BrokerMisbehaved, match=f"in use by process {broker.pid}"):
        second.start()
    ConfluentClient().write(broker.address, (topic, 0), [Message(value=b"v")], idempotent=False)
    assert ConfluentClient().bounds(broker.address, (topic, 0)) == (0, 1)
