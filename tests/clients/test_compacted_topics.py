"""Compacted topics as clients see them: gaps in the offsets, deletions, headers without records, missing keys."""

import time
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from support.all_clients import each_client
from support.broker_process import BrokerProcess
from support.confluent_client import ConfluentClient
from support.message import CODECS, KafkaClient, Message, Place
from support.stored import stored_batches
from support.topics import Topics
from support.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("compacted-topics")]

NOW_MS = int(time.time() * 1000)
WRITER = ConfluentClient()
KEYS = 5
RNG = Random(7)
COMPACT: dict[str, Any] = {
    "cleanup_policy": "compact",
    "segment_bytes": 1024,
    "min_cleanable_dirty_ratio": 0.01,
    "file_delete_delay_ms": 0,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data = tmp_path_factory.mktemp("broker") / "data"
    with BrokerProcess(data, {"compaction_check_ms": 50, "retention_check_ms": 100}) as running:
        yield running


def noise(size: int) -> bytes:
    """Text that shrinks little, so that segments fill in every codec."""
    return RNG.randbytes(size // 2).hex().encode()


def history(rounds: int) -> list[Message]:
    """Every key is written again and again; one of them is deleted in the end."""
    messages = [
        Message(
            key=b"key-%d" % key,
            value=noise(240),
            headers=(("round", b"%d" % number),),
            timestamp_ms=NOW_MS - 60_000 + number,
        )
        for number in range(rounds)
        for key in range(KEYS)
    ]
    deletion = Message(key=b"key-0", value=None, timestamp_ms=NOW_MS)
    # What comes last lies in the segment that is not compacted.
    ends = [Message(key=b"end-%d" % number, value=noise(800)) for number in range(6)]
    return [*messages, deletion, *ends]


def newest(messages: list[Message]) -> dict[bytes | None, Message]:
    return {message.key: message for message in messages}


def write(
    broker: BrokerProcess,
    place: Place,
    messages: list[Message],
    codec: str,
    writer: KafkaClient = WRITER,
) -> None:
    """In some batches, each of a producer that will be known for a while."""
    step = 1 + len(messages) // 4
    for at in range(0, len(messages), step):
        writer.write(broker.address, place, messages[at : at + step], codec=codec)


def wait_for_compaction(broker: BrokerProcess, place: Place, *, records_max: int) -> None:
    def is_compacted() -> bool:
        try:
            stored = sum(one.record_count for one in stored_batches(broker.data, place))
        except FileNotFoundError:
            # A segment was put in the place of others while we looked.
            return False
        return stored <= records_max and not list(broker.data.glob(f"{place[0]}-*/*.cleaned"))

    wait_until(is_compacted, f"{place[0]} has at most {records_max} records", seconds=60)


@pytest.fixture(scope="module")
def compacted(broker: BrokerProcess, topics: Topics) -> dict[str, list[Message]]:
    """A topic in each codec, and what was written to it."""
    written = {}
    for codec in CODECS:
        topic = f"compacted-{codec}"
        topics.create(topic, **COMPACT)
        messages = history(rounds=20)
        write(broker, (topic, 0), messages, codec)
        written[topic] = messages
    for topic in written:
        # The newest of each key, and a few that lie in the segment being written.
        wait_for_compaction(broker, (topic, 0), records_max=KEYS + 6 + 30)
    return written


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("reader", each_client())
def test_every_client_reads_the_newest_of_each_key(
    broker: BrokerProcess, compacted: dict[str, list[Message]], reader: KafkaClient, codec: str
) -> None:
    topic = f"compacted-{codec}"
    found = reader.read(broker.address, [(topic, 0)])[topic, 0]
    offsets = [one.offset for one in found]
    assert offsets == sorted(set(offsets))
    assert len(found) < len(compacted[topic]) / 2
    last = {one.key: one for one in found}
    expected = newest(compacted[topic])
    assert set(last) == set(expected)
    for key, one in last.items():
        assert one.is_copy_of(expected[key]), key


@pytest.mark.parametrize("reader", each_client())
def test_a_read_from_an_offset_that_is_gone_goes_on_with_the_next(
    broker: BrokerProcess, compacted: dict[str, list[Message]], reader: KafkaClient
) -> None:
    place = ("compacted-none", 0)
    all_of_it = reader.read(broker.address, [place])[place]
    first = all_of_it[0]
    assert first.offset > 1
    assert reader.read_from(broker.address, place, first.offset - 1, count=2) == all_of_it[:2]
    assert reader.bounds(broker.address, place) == (0, len(compacted[place[0]]))


@pytest.mark.parametrize("reader", each_client())
def test_a_look_up_by_time_finds_what_is_left(
    broker: BrokerProcess, compacted: dict[str, list[Message]], reader: KafkaClient
) -> None:
    place = ("compacted-none", 0)
    left = WRITER.read(broker.address, [place])[place]
    times = [one.timestamp_ms for one in left]
    assert times == sorted(times)
    # Of the first rounds nothing is left, so the first of what is left answers for them.
    assert reader.offset_at(broker.address, place, NOW_MS - 60_000) == left[0].offset
    for time_ms in {times[0], times[len(times) // 2], times[-1]}:
        first = left[times.index(time_ms)]
        assert reader.offset_at(broker.address, place, time_ms) == first.offset
    assert reader.offset_at(broker.address, place, times[-1] + 1) is None


@pytest.mark.parametrize("writer", each_client())
def test_what_any_client_writes_is_compacted(
    broker: BrokerProcess, topics: Topics, writer: KafkaClient
) -> None:
    topic = topics.new(f"written-by-{writer.name}", **COMPACT)
    messages = [
        Message(key=b"key-%d" % (number % KEYS), value=noise(800)) for number in range(10 * KEYS)
    ]
    messages.append(Message(key=b"key-0", value=None))
    write(broker, (topic, 0), messages, "none", writer)
    writer.write(broker.address, (topic, 0), [Message(key=b"end", value=noise(1000))])
    wait_for_compaction(broker, (topic, 0), records_max=2 * KEYS + 2)
    last = {one.key: one for one in WRITER.read(broker.address, [(topic, 0)])[topic, 0]}
    for key, message in newest(messages).items():
        assert last[key].is_copy_of(writer.express(message)), key


def test_a_deletion_is_shown_for_a_while_and_then_goes(
    broker: BrokerProcess, topics: Topics
) -> None:
    topic = topics.new("deleted", **COMPACT, delete_retention_ms=0)
    place = (topic, 0)
    write(broker, place, history(rounds=4), "none")

    def keys() -> set[bytes | None]:
        # Something new, so that it is compacted again.
        WRITER.write(broker.address, place, [Message(key=b"end-0", value=noise(1000))])
        return {one.key for one in WRITER.read(broker.address, [place])[place]}

    assert b"key-0" in keys()
    wait_until(lambda: b"key-0" not in keys(), "the deletion is gone", seconds=60)
    assert {b"key-%d" % key for key in range(1, KEYS)} < keys()


def test_a_topic_can_be_compacted_and_lose_what_is_old(
    broker: BrokerProcess, topics: Topics
) -> None:
    topic = topics.new("both", **(COMPACT | {"cleanup_policy": "compact,delete"}))
    place = (topic, 0)
    old_ms = NOW_MS - 8 * 24 * 3600 * 1000
    old = [
        Message(key=b"old-%d" % number, value=noise(1000), timestamp_ms=old_ms)
        for number in range(5)
    ]
    new = history(rounds=10)
    for messages in ([one] for one in old):
        WRITER.write(broker.address, place, messages)
    write(broker, place, new, "none")

    def keys() -> set[bytes | None]:
        return {one.key for one in WRITER.read(broker.address, [place])[place]}

    wait_for_compaction(broker, place, records_max=KEYS + 6 + 30)
    wait_until(lambda: keys() == set(newest(new)), "what is older than 7 days is gone", seconds=60)
    assert WRITER.bounds(broker.address, place)[0] >= len(old)


@pytest.mark.parametrize("writer", each_client())
def test_every_client_is_told_that_a_key_is_missing(
    broker: BrokerProcess, topics: Topics, writer: KafkaClient
) -> None:
    topic = topics.new("keyless", **COMPACT)
    # In each client's own words; aiokafka has none for it.
    words = "UnknownError" if writer.name == "aiokafka" else "(?i)invalid_?record|validate record"
    with pytest.raises(Exception, match=words):
        writer.write(broker.address, (topic, 0), [Message(key=None, value=b"v")], idempotent=False)
    writer.write(broker.address, (topic, 0), [Message(key=b"k", value=b"v")])
    assert WRITER.bounds(broker.address, (topic, 0)) == (0, 1)


def test_a_record_without_a_key_is_refused(broker: BrokerProcess, topics: Topics) -> None:
    topic = topics.new("keys", **COMPACT)
    good = Message(key=b"k", value=b"v")
    for codec in CODECS:
        with pytest.raises(KafkaException) as refused:
            WRITER.write(
                broker.address,
                (topic, 0),
                [Message(key=None, value=b"v")],
                codec=codec,
                idempotent=False,
            )
        assert refused.value.args[0].code() == KafkaError.INVALID_RECORD
        WRITER.write(broker.address, (topic, 0), [good], codec=codec)
    assert WRITER.bounds(broker.address, (topic, 0)) == (0, len(CODECS))


def test_a_broker_killed_while_it_compacts_loses_nothing(
    broker: BrokerProcess, topics: Topics
) -> None:
    topic = topics.new("killed", **COMPACT)
    place = (topic, 0)
    written: list[Message] = []
    for _ in range(3):
        messages = [
            Message(key=b"key-%d" % (number % 50), value=noise(200)) for number in range(400)
        ]
        write(broker, place, messages, "lz4")
        written += messages
        broker.kill()
        broker.start()
        last = {one.key: one.value for one in WRITER.read(broker.address, [place])[place]}
        assert last == {key: message.value for key, message in newest(written).items()}
    wait_for_compaction(broker, place, records_max=50 + 110)
    assert "compacted" in broker.log
