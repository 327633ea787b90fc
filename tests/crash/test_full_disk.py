"""A disk without room: producers wait and try again, readers go on, and all is well once there is room.

No disk is filled here. The system refuses to let the broker's files grow beyond a limit (`RLIMIT_FSIZE`), which looks
the same to the broker, and the limit can be lifted while it runs.
"""

import resource
import subprocess

import pytest

from crash.conftest import StartBroker
from crash.flood import Flood
from support.broker_process import BrokerProcess
from support.confluent_client import ConfluentClient, Deliveries, producer
from support.kafka_python_client import KafkaPythonClient
from support.message import Message
from support.topics import Topics
from support.waiting import wait_until

pytestmark = [pytest.mark.crash, pytest.mark.xdist_group("full-disk")]

UNLIMITED = resource.RLIM_INFINITY


def largest_file(broker: BrokerProcess, topic: str) -> int:
    return max(path.stat().st_size for path in broker.data.glob(f"{topic}-*/*.log"))


def fill_up(broker: BrokerProcess, topic: str) -> None:
    """From now on no log of this topic can grow."""
    broker.limit({resource.RLIMIT_FSIZE: max(1, largest_file(broker, topic))})


def make_room(broker: BrokerProcess) -> None:
    broker.limit({resource.RLIMIT_FSIZE: UNLIMITED})


def test_producers_succeed_again_once_there_is_room(start_broker: StartBroker) -> None:
    broker = start_broker(checkpoint_ms=60_000)
    broker.foresee("the disk is full")
    topic = Topics(broker.address).new("filling", partitions=2)
    with Flood(broker.address, topic, partitions=2, producers=[{}, {}]) as flood:
        for _ in range(3):
            flood.wait_for_acknowledgements(100)
            lines = len(broker.log.splitlines())
            fill_up(broker, topic)
            wait_until(
                lambda lines=lines: (
                    "the disk is full" in "\n".join(broker.log.splitlines()[lines:])
                ),  # type: ignore[misc]
                "the broker meets the full disk",
            )
            # Readers go on meanwhile: all that was acknowledged is there. (Not librdkafka, which looks for
            # its group: the topic for groups cannot be made now, and SQLite takes this limit for a broken disk.)
            reader = KafkaPythonClient()
            low, high = reader.bounds(broker.address, (topic, 0))
            read = reader.read_from(broker.address, (topic, 0), low, count=high - low)
            assert [one.offset for one in read] == list(range(low, high))
            make_room(broker)
    assert [one.account.errors for one in flood.producers] == [[], []]
    flood.check(ConfluentClient().read(broker.address, flood.places))


def test_a_producer_that_does_not_wait_is_told_what_is_wrong(start_broker: StartBroker) -> None:
    broker = start_broker(checkpoint_ms=60_000)
    broker.foresee("the disk is full")
    topic = Topics(broker.address).new("filling")
    before = Message(value=b"before")
    ConfluentClient().write(broker.address, (topic, 0), [before], idempotent=False)
    fill_up(broker, topic)
    told = Deliveries()
    sender = producer(broker.address, enable_idempotence=False, retries=0)
    sender.produce(topic, b"refused", partition=0, on_delivery=told)
    assert not sender.flush(20)
    assert [error.name() for error in told.errors] == ["KAFKA_STORAGE_ERROR"]
    make_room(broker)
    ConfluentClient().write(broker.address, (topic, 0), [Message(value=b"after")], idempotent=False)
    received = ConfluentClient().read(broker.address, [(topic, 0)])[topic, 0]
    assert [(one.offset, one.value) for one in received] == [(0, before.value), (1, b"after")]


def test_a_kill_on_a_full_disk_loses_nothing(start_broker: StartBroker) -> None:
    broker = start_broker(checkpoint_ms=60_000)
    broker.foresee("the disk is full")
    topic = Topics(broker.address).new("filling")
    with Flood(broker.address, topic, partitions=1, producers=[{}, {}]) as flood:
        flood.wait_for_acknowledgements(200)
        fill_up(broker, topic)
        broker.wait_for_log("the disk is full")
        broker.kill()
        broker.start()
    flood.check(ConfluentClient().read(broker.address, flood.places))


def test_a_broker_that_cannot_start_for_want_of_room_says_so_without_a_traceback(
    start_broker: StartBroker,
) -> None:
    broker = start_broker()
    topic = Topics(broker.address).new("kept")
    ConfluentClient().write(broker.address, (topic, 0), [Message(value=b"v")], idempotent=False)
    broker.kill()
    # Room for the lock file, none for the metadata.
    room = 4096
    refused = subprocess.run(
        broker.command(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)),
    )
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert "Traceback" not in refused.stderr
    assert refused.stderr.splitlines()[-1].startswith("respool: ")
    broker.start()
    assert ConfluentClient().bounds(broker.address, (topic, 0)) == (0, 1)
