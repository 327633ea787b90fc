"""Record batches that no client should send: each is refused with the error Kafka has for it, and none is stored."""

import gzip
import struct
from collections.abc import Callable, Iterator
from typing import Any

import cramjam
import pytest

from broker.wire_client import encode_request
from respool.records.batch import BatchHeader, Codec, read_header, seal
from respool.records.build import NewRecord, build_batch
from respool.wire.api_table import Api
from support.broker_process import BrokerProcess
from support.raw_client import RawClient, produce_fields
from support.stored import stored_batches
from support.topics import Topics
from support.witness import Witness

pytestmark = [pytest.mark.xdist_group("hostile-batches")]

CORRUPT_MESSAGE = 2
MESSAGE_TOO_LARGE = 10
INVALID_TIMESTAMP = 32
UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
OUT_OF_ORDER_SEQUENCE = 45
INVALID_PRODUCER_EPOCH = 47
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
UNSUPPORTED_COMPRESSION = 76
INVALID_RECORD = 87

MIB = 1024 * 1024
RECORDS = [NewRecord(key=b"k", value=b"value %d" % number) for number in range(3)]
GOOD = build_batch(RECORDS)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("hostile") / "data") as running:
        yield running


@pytest.fixture(scope="module")
def topics(broker: BrokerProcess) -> Topics:
    return Topics(broker.address)


@pytest.fixture(scope="module")
def witness(broker: BrokerProcess) -> Witness:
    return Witness(broker)


@pytest.fixture(autouse=True)
def _unharmed(witness: Witness) -> Iterator[None]:
    yield
    witness.testify()


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.address) as connected:
        yield connected


def resealed(**changes: Any) -> bytes:
    """The good batch with other header fields, and the right checksum over them."""
    header: BatchHeader = read_header(GOOD)._replace(**changes)
    return bytes(seal(header, GOOD[61:]).data)


def with_length(length: int) -> bytes:
    return GOOD[:8] + struct.pack(">i", length) + GOOD[12:]


def flipped(position: int) -> bytes:
    return GOOD[:position] + bytes([GOOD[position] ^ 1]) + GOOD[position + 1 :]


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        pytest.param(flipped(len(GOOD) - 1), CORRUPT_MESSAGE, id="a record byte flipped"),
        pytest.param(flipped(60), CORRUPT_MESSAGE, id="the count flipped"),
        pytest.param(flipped(17), CORRUPT_MESSAGE, id="the checksum flipped"),
        pytest.param(GOOD[:-1], CORRUPT_MESSAGE, id="the last byte missing"),
        pytest.param(GOOD[:40], CORRUPT_MESSAGE, id="half a header"),
        pytest.param(GOOD[:1], CORRUPT_MESSAGE, id="one byte"),
        pytest.param(with_length(2**31 - 1), CORRUPT_MESSAGE, id="a length of 2 GiB"),
        pytest.param(with_length(-1), CORRUPT_MESSAGE, id="a negative length"),
        pytest.param(with_length(0), CORRUPT_MESSAGE, id="a length of 0"),
        pytest.param(b"", CORRUPT_MESSAGE, id="no bytes"),
        pytest.param(None, INVALID_RECORD, id="null"),
        pytest.param(GOOD + GOOD, INVALID_RECORD, id="two batches"),
        pytest.param(GOOD + b"x", INVALID_RECORD, id="a byte too many"),
        pytest.param(resealed(record_count=4), INVALID_RECORD, id="too many counted"),
        pytest.param(resealed(record_count=0, last_offset_delta=-1), INVALID_RECORD, id="none"),
        pytest.param(resealed(record_count=-1), INVALID_RECORD, id="a negative count"),
        pytest.param(resealed(last_offset_delta=7), INVALID_RECORD, id="offsets with gaps"),
        pytest.param(resealed(base_offset=5), INVALID_RECORD, id="an offset of its own"),
        pytest.param(resealed(attributes=0x20), INVALID_RECORD, id="a control batch"),
        pytest.param(resealed(attributes=0x4000), INVALID_RECORD, id="a reserved bit"),
        pytest.param(resealed(attributes=0x10), INVALID_RECORD, id="transactional, no producer"),
        pytest.param(
            resealed(attributes=0x10, producer_id=1, producer_epoch=0, base_sequence=0),
            TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            id="a transaction without a name",
        ),
        pytest.param(resealed(attributes=5), UNSUPPORTED_COMPRESSION, id="an unknown codec"),
        pytest.param(resealed(producer_id=-7), INVALID_RECORD, id="a negative producer id"),
        pytest.param(
            resealed(producer_id=1, producer_epoch=0, base_sequence=-1),
            INVALID_RECORD,
            id="a producer without a sequence",
        ),
        pytest.param(resealed(max_timestamp=-5), INVALID_TIMESTAMP, id="a negative time"),
        pytest.param(resealed(max_timestamp=2**62), INVALID_TIMESTAMP, id="the far future"),
        pytest.param(
            GOOD[:16] + b"\x01" + GOOD[17:], UNSUPPORTED_FOR_MESSAGE_FORMAT, id="format v1"
        ),
        pytest.param(
            GOOD[:16] + b"\x00" + GOOD[17:], UNSUPPORTED_FOR_MESSAGE_FORMAT, id="format v0"
        ),
    ],
)
def test_a_batch_that_breaks_the_rules_is_refused_and_nothing_is_stored(
    broker: BrokerProcess, topics: Topics, client: RawClient, batch: bytes | None, error: int
) -> None:
    topic = topics.new("strict")
    assert client.produce(topic, batch).error_code == error
    assert stored_batches(broker.data, (topic, 0)) == []
    # The connection and the partition are as good as before.
    answer = client.produce(topic, GOOD)
    assert (answer.error_code, answer.base_offset) == (0, 0)


def test_a_batch_larger_than_the_topic_allows_is_refused(
    broker: BrokerProcess, topics: Topics, client: RawClient
) -> None:
    topic = topics.new("small", max_message_bytes=1_000)
    large = build_batch([NewRecord(value=b"x" * 1_000)])
    assert client.produce(topic, large).error_code == MESSAGE_TOO_LARGE
    assert stored_batches(broker.data, (topic, 0)) == []


def test_a_good_batch_beside_a_bad_one_is_stored(
    broker: BrokerProcess, topics: Topics, client: RawClient
) -> None:
    topic = topics.new("mixed", partitions=2)
    assert client.produce(topic, flipped(70), partition=0).error_code == CORRUPT_MESSAGE
    assert client.produce(topic, GOOD, partition=1).error_code == 0
    assert len(stored_batches(broker.data, (topic, 1))) == 1


def test_a_refused_batch_without_acks_ends_the_connection(
    topics: Topics, broker: BrokerProcess
) -> None:
    topic = topics.new("strict")
    with RawClient(broker.address) as client:
        fields = produce_fields(topic, flipped(70), 0, 0)
        client.send_frame(encode_request(Api.PRODUCE, 9, **fields))
        client.wait_for_end()


def test_a_batch_that_claims_two_billion_records_leaves_the_log_sound(
    broker: BrokerProcess, topics: Topics
) -> None:
    """Records are not counted, so it is stored (ADR 1); offsets leap, and the next segment begins early."""
    topic = topics.new("leaping")
    most = 2**31 - 1
    leap = resealed(record_count=most, last_offset_delta=most - 1)
    with RawClient(broker.address) as client:
        for number in range(3):
            answer = client.produce(topic, leap)
            assert (answer.error_code, answer.base_offset) == (0, number * most)
        assert client.produce(topic, GOOD).base_offset == 3 * most
    broker.kill()
    broker.start()
    with RawClient(broker.address) as client:
        assert client.produce(topic, GOOD).base_offset == 3 * most + 3
        for offset in (0, 1, most, 2 * most + 5, 3 * most, 3 * most + 4):
            fetched = client.fetch(topic, offset)
            assert fetched.error_code == 0
            header = read_header(fetched.records)
            assert header.base_offset <= offset < header.next_offset


# Sequences.


def sequenced(sequence: int, *, epoch: int = 0, count: int = 3) -> bytes:
    return build_batch(
        RECORDS[:count], producer_id=4711, producer_epoch=epoch, base_sequence=sequence
    )


def test_sequences_out_of_order_are_refused_and_repeated_ones_are_stored_once(
    broker: BrokerProcess, topics: Topics, client: RawClient
) -> None:
    topic = topics.new("sequenced")
    outcomes = [
        (sequenced(0), 0, 0),
        (sequenced(3), 0, 3),
        (sequenced(9), OUT_OF_ORDER_SEQUENCE, -1),
        (sequenced(3), 0, 3),
        (sequenced(0), 0, 0),
        (sequenced(1), OUT_OF_ORDER_SEQUENCE, -1),
        (sequenced(0, epoch=2), 0, 6),
        (sequenced(3, epoch=1), INVALID_PRODUCER_EPOCH, -1),
        (sequenced(5, epoch=3), OUT_OF_ORDER_SEQUENCE, -1),
        (sequenced(3, epoch=2), 0, 9),
    ]
    for batch, error, base_offset in outcomes:
        answer = client.produce(topic, batch)
        assert (answer.error_code, answer.base_offset) == (error, base_offset)
    stored = stored_batches(broker.data, (topic, 0))
    assert [one.base_offset for one in stored] == [0, 3, 6, 9]


def test_a_repeated_batch_is_known_after_a_restart(broker: BrokerProcess, topics: Topics) -> None:
    topic = topics.new("sequenced")
    with RawClient(broker.address) as client:
        for sequence in (0, 3, 6):
            assert client.produce(topic, sequenced(sequence)).error_code == 0
    broker.restart()
    with RawClient(broker.address) as client:
        assert client.produce(topic, sequenced(3)).base_offset == 3
        assert client.produce(topic, sequenced(9)).base_offset == 9
        assert client.produce(topic, sequenced(15)).error_code == OUT_OF_ORDER_SEQUENCE


# Bombs: small batches that unpack to much.


def gzip_bomb(size: int) -> bytes:
    return gzip.compress(bytes(size), 9)


def zstd_bomb(size: int) -> bytes:
    return bytes(cramjam.zstd.compress(bytes(size), 19))


def lz4_bomb(size: int) -> bytes:
    return bytes(cramjam.lz4.compress(bytes(size)))


def snappy_lie(size: int) -> bytes:
    """A raw snappy block that announces much and holds little: a varint and one literal."""
    announced = bytearray()
    while size >= 0x80:
        announced.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*announced, size, 0, 0])


BOMBS: list[tuple[Codec, Callable[[int], bytes]]] = [
    (Codec.GZIP, gzip_bomb),
    (Codec.ZSTD, zstd_bomb),
    (Codec.LZ4, lz4_bomb),
    (Codec.SNAPPY, snappy_lie),
]


@pytest.mark.parametrize(("codec", "bomb"), BOMBS, ids=[codec.name for codec, _ in BOMBS])
def test_a_batch_that_unpacks_to_too_much_is_refused_within_bounded_memory(
    broker: BrokerProcess,
    topics: Topics,
    client: RawClient,
    codec: Codec,
    bomb: Callable[[int], bytes],
) -> None:
    topic = topics.new("unpacking", compression_type="uncompressed", max_message_bytes=4 * MIB)
    body = bomb(128 * MIB)
    assert len(body) < 2 * MIB
    batch = bytes(seal(read_header(GOOD)._replace(attributes=int(codec)), body).data)
    before = broker.peak_resident_bytes()
    answer = client.produce(topic, batch)
    assert answer.error_code in {MESSAGE_TOO_LARGE, CORRUPT_MESSAGE}
    assert stored_batches(broker.data, (topic, 0)) == []
    assert broker.peak_resident_bytes() - before < 220 * MIB


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_batch_that_cannot_be_unpacked_is_refused_where_the_topic_wants_another_codec(
    broker: BrokerProcess, topics: Topics, client: RawClient, codec: Codec
) -> None:
    topic = topics.new("unpacking", compression_type="uncompressed")
    garbage = bytes(seal(read_header(GOOD)._replace(attributes=int(codec)), b"garbage").data)
    assert client.produce(topic, garbage).error_code == CORRUPT_MESSAGE
    assert stored_batches(broker.data, (topic, 0)) == []


def test_a_time_is_looked_up_beside_a_batch_that_cannot_be_unpacked(
    topics: Topics, client: RawClient
) -> None:
    """Such a batch can be stored where the topic keeps the producer's codec: the broker does not look inside."""
    topic = topics.new("opaque")
    header = read_header(GOOD)._replace(
        attributes=int(Codec.ZSTD), base_timestamp=1_000, max_timestamp=2_000
    )
    assert client.produce(topic, bytes(seal(header, b"garbage").data)).error_code == 0
    good = build_batch([NewRecord(value=b"v", timestamp_ms=3_000)])
    assert client.produce(topic, good).error_code == 0
    wishes = [
        {"partition_index": 0, "current_leader_epoch": -1, "timestamp": time_ms}
        for time_ms in (1_500, 2_500, -3)
    ]
    for wish in wishes:
        reply = client.ask(
            Api.LIST_OFFSETS,
            7,
            replica_id=-1,
            isolation_level=0,
            topics=[{"name": topic, "partitions": [wish]}],
        )
        (answer,) = reply.topics[0].partitions
        assert (wish["timestamp"], answer.error_code) in {
            (1_500, CORRUPT_MESSAGE),
            (1_500, 0),
            (2_500, 0),
            (-3, 0),
        }
    # Nor does it take the partition out of service.
    assert client.produce(topic, good).error_code == 0
    assert client.fetch(topic).error_code == 0
