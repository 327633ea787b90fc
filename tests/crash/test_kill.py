"""`kill -9` in the middle of a flood: nothing acknowledged is lost, doubled or out of order."""

import os
import random

import pytest

from crash.conftest import StartBroker
from crash.flood import Flood
from support.all_clients import INSTALLED
from support.topics import Topics

pytestmark = [pytest.mark.crash, pytest.mark.xdist_group("kill")]

ROUNDS = 6
LONG_ROUNDS = 60
PARTITIONS = 3


def test_nothing_acknowledged_is_lost_or_doubled_by_kills(start_broker: StartBroker) -> None:
    _flood_and_kill(start_broker, rounds=ROUNDS)


@pytest.mark.long
@pytest.mark.skipif(os.environ.get("RESPOOL_FUZZ") != "long", reason="make fuzz")
@pytest.mark.timeout(1_800)
def test_nothing_acknowledged_is_lost_or_doubled_by_many_kills(start_broker: StartBroker) -> None:
    _flood_and_kill(start_broker, rounds=LONG_ROUNDS)


def _flood_and_kill(start_broker: StartBroker, *, rounds: int) -> None:
    rng = random.Random(20)
    broker = start_broker()
    topics = Topics(broker.address)
    # Small segments, so that some kills come while one is rolled.
    topic = topics.new("flooded", partitions=PARTITIONS, segment_bytes=50_000)
    idempotent = [{"compression_type": codec} for codec in ("none", "zstd", "gzip")]
    with Flood(broker.address, topic, partitions=PARTITIONS, producers=idempotent) as flood:
        for _ in range(rounds):
            flood.wait_for_acknowledgements(rng.randrange(1, 300))
            broker.kill()
            broker.start()
    assert [one.account.errors for one in flood.producers] == [[], [], []]

    readings = [client.read(broker.address, flood.places) for client in INSTALLED]
    flood.check(readings[0])
    assert all(reading == readings[0] for reading in readings[1:])


def test_without_idempotence_kills_lose_nothing_acknowledged(start_broker: StartBroker) -> None:
    broker = start_broker()
    topic = Topics(broker.address).new("flooded", partitions=2)
    plain = [{"enable_idempotence": False, "acks": "all"}]
    with Flood(broker.address, topic, partitions=2, producers=plain) as flood:
        for _ in range(3):
            flood.wait_for_acknowledgements(100)
            broker.kill()
            broker.start()
    flood.check(INSTALLED[0].read(broker.address, flood.places), exactly_once=False)
