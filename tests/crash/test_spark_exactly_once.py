"""A Spark query from topic to topic, with `kill -9` of its driver, its executors, its Python workers and the broker.

What a read_committed reader of another make finds in the end is each event that went in, once.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition

from crash.conftest import StartBroker
from support.broker_process import BrokerProcess
from support.confluent_client import Deliveries, consumer, producer
from support.spark_query import MADE, SparkQuery
from support.topics import Topics

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.xdist_group("spark-processes")]

PARTITIONS = 3
SETTINGS = {"offsets_topic_partitions": 2, "transactions_topic_partitions": 2}
LONG_EVENTS = int(os.environ.get("SPARK_TORTURE_EVENTS", "1000000"))
LONG_KILLS = int(os.environ.get("SPARK_TORTURE_KILLS", "50"))
LONG_MASTER = os.environ.get("SPARK_TORTURE_MASTER", "local[2,4]")
SEED = int(os.environ.get("SPARK_TORTURE_SEED", "7"))


@pytest.mark.timeout(600)
def test_spark_writes_each_event_once_whoever_is_killed(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    # And all of it, in the end: each start takes as long as all batches after it.
    victims = ["worker", "broker", "driver"]
    _run(start_broker(**SETTINGS), tmp_path, events=20_000, victims=victims, seed=3)


@pytest.mark.long
@pytest.mark.skipif(os.environ.get("RESPOOL_FUZZ") != "long", reason="make fuzz")
@pytest.mark.timeout(7_200)
def test_spark_writes_a_million_events_once_over_fifty_kills(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    rng = random.Random(SEED)
    kinds = ["worker"] * 5 + ["broker"] * 4 + ["driver", "all"]
    if LONG_MASTER.startswith("local-cluster"):
        kinds += ["executor", "executor"]
    victims = rng.choices(kinds, k=LONG_KILLS)
    _run(
        start_broker(**SETTINGS),
        tmp_path,
        events=LONG_EVENTS,
        victims=victims,
        seed=SEED,
        master=LONG_MASTER,
    )


def _run(
    broker: BrokerProcess,
    folder: Path,
    *,
    events: int,
    victims: list[str],
    seed: int,
    master: str = "local[2,4]",
) -> None:
    rng = random.Random(seed)
    topics = Topics(broker.address)
    source = topics.new("rides", partitions=PARTITIONS)
    target = topics.new("charges", partitions=PARTITIONS)
    # Each kill comes with some batches of its own, and the last start too: work is left for all of them.
    shares = _shares(events, len(victims) + 2)

    def start(*, is_last: bool = False) -> SparkQuery:
        return SparkQuery(
            broker.address,
            source=source,
            target=target,
            checkpoint=folder / "checkpoint",
            rows=max(events // (12 * len(victims) + 5), 100) if not is_last else events // 5,
            master=master,
            is_last=is_last,
        )

    query = start()
    done = Counter[str]()
    try:
        for victim in victims:
            _fill(broker.address, source, next(shares))
            query.wait_for_batches(rng.randint(1, 2))
            _wait_into_a_batch(rng)
            done[_kill(victim, query, broker, rng)] += 1
            print(f"{time.strftime('%X')} {dict(done)}", flush=True)
            if not query.is_running:
                query = start()
        _fill(broker.address, source, next(shares))
        query.wait_for_batches(1)
        _wait_into_a_batch(rng)
        done[_kill("all", query, broker, rng)] += 1
        in_before = len(_read(broker.address, target, is_whole=False))
        _fill(broker.address, source, next(shares))
        query = start(is_last=True)
        assert query.wait_for_end(300.0 + events / 1_000) == 0, query.tail
    except BaseException as error:
        error.add_note(f"killed: {done}; the query's log:\n{query.tail}")
        raise
    finally:
        query.kill_all()
    found = Counter(_read(broker.address, target, is_whole=True))
    print(f"killed: {dict(done)}; {in_before} of {events} events were in before the last start")
    twice = [value for value, times in found.items() if times > 1]
    assert not twice, f"{len(twice)} are there twice: {twice[:10]}"
    missing = {MADE + b"%d" % number for number in range(events)} - found.keys()
    assert not missing, f"{len(missing)} are missing: {sorted(missing)[:10]}"
    assert len(found) == events


def _wait_into_a_batch(rng: random.Random) -> None:
    """Into the middle of one, wherever that is."""
    time.sleep(rng.random() * 0.8)


def _kill(victim: str, query: SparkQuery, broker: BrokerProcess, rng: random.Random) -> str:
    if victim == "broker":
        broker.kill()
        time.sleep(rng.random())
        broker.start()
    elif victim == "driver":
        query.kill_driver()
    elif victim == "all":
        query.kill_all()
    elif victim == "executor" and query.kill_executor(rng):
        return victim
    elif not query.kill_worker(rng):
        return "nobody"
    return victim


def _shares(events: int, count: int) -> Iterator[range]:
    for number in range(count):
        yield range(events * number // count, events * (number + 1) // count)


def _fill(address: str, topic: str, events: range) -> None:
    sender, told = producer(address, queue_buffering_max_messages=2_000_000), Deliveries()
    for number in events:
        sender.produce(
            topic, b"%d" % number, b"k%d" % (number % 997), number % PARTITIONS, on_delivery=told
        )
        if number % 1_000 == 0:
            sender.poll(0)
    assert not sender.flush(120)
    assert not told.errors


def _read(address: str, topic: str, *, is_whole: bool) -> list[bytes]:
    """What a read_committed reader finds. Nothing may be left open that would hold it back, when it is all done."""
    found: list[bytes] = []
    for number in range(PARTITIONS):
        reader = consumer(address, isolation_level="read_committed")
        place = TopicPartition(topic, number, OFFSET_BEGINNING)
        reader.assign([place])
        try:
            is_at_end = False
            while not is_at_end:
                for message in reader.consume(5_000, 0.2):
                    if message.error() is None:
                        found.append(message.value())
                    elif message.error().code() == KafkaError._PARTITION_EOF:
                        is_at_end = True
                    else:
                        pytest.fail(str(message.error()))
        finally:
            reader.close()
    assert found or not is_whole
    return found
