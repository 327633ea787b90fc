"""Produce, from request bytes to reply bytes."""

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any

import pytest

from broker.running_broker import EARLIEST, LATEST, RunningBroker, StartBroker
from broker.wire_client import decode_reply, encode_request, versions
from respool.broker.dispatch import handle
from respool.broker.outcome import CloseConnection, Pipelined
from respool.log.partition_log import ReadSpec
from respool.records.batch import Codec, RecordBatch, read_header
from respool.records.build import NewRecord, build_batch
from respool.records.record import read_records
from respool.records.validate import walk_batches
from respool.wire.api_table import Api
from respool.wire.codec import decode_request

VERSION = 9
TIMED_OUT, TOO_LARGE, NOT_ENOUGH_REPLICAS, BAD_ACKS = 7, 10, 19, 21
CORRUPT, UNKNOWN_TOPIC, NOT_LEADER, BAD_TIMESTAMP, OUT_OF_ORDER, STALE_EPOCH = 2, 3, 6, 32, 45, 47
UNKNOWN_TOPIC_ID, NO_TRANSACTIONAL_ID, STORAGE_ERROR, BAD_CODEC, BAD_RECORD = 100, 53, 56, 76, 87


def batch(*values: bytes, timestamp_ms: int = 1_000, **fields: Any) -> bytes:
    records = [NewRecord(value=value, timestamp_ms=timestamp_ms) for value in values or (b"v",)]
    return build_batch(records, **fields)


def request(
    *parts: tuple[str, int, bytes | None], acks: int = -1, timeout: int = 1000
) -> dict[str, Any]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for topic, index, records in parts:
        topics.setdefault(topic, []).append({"index": index, "records": records})
    return {
        "transactional_id": None,
        "acks": acks,
        "timeout": timeout,
        "topic_data": [{"name": name, "partition_data": data} for name, data in topics.items()],
    }


def send(
    broker: RunningBroker,
    records: bytes | None,
    *,
    topic: str = "rides",
    version: int = VERSION,
    acks: int = -1,
) -> Any:
    fields = request((topic, 0, records), acks=acks)
    fields["topic_data"] = [{**broker.topic_ref(topic), **one} for one in fields["topic_data"]]
    reply = broker.ask(Api.PRODUCE, version, **fields)
    return reply.responses[0].partition_responses[0]


def stored(broker: RunningBroker, topic: str = "rides") -> bytes:
    partition = broker.broker.partitions.find(topic, 0)
    log = partition.log
    return bytes(log.read(ReadSpec(log.log_start, max_offset=log.log_end, bytes_max=1 << 20)))


@pytest.fixture
def rides(running_broker: RunningBroker) -> RunningBroker:
    running_broker.create_topic("rides", partitions=2)
    return running_broker


@pytest.mark.parametrize("version", versions(Api.PRODUCE))
@pytest.mark.parametrize("acks", [1, -1])
def test_every_version_appends_and_answers_with_the_offset(
    rides: RunningBroker, version: int, acks: int
) -> None:
    first = send(rides, batch(b"a", b"b"), version=version, acks=acks)
    second = send(rides, batch(b"c"), version=version, acks=acks)
    assert (first.error_code, first.base_offset) == (0, 0)
    assert (second.error_code, second.base_offset) == (0, 2)
    assert rides.offset("rides", at=LATEST) == 3


def test_by_id_a_topic_that_does_not_exist_is_told_and_others_are_written(
    rides: RunningBroker,
) -> None:
    old = rides.topic_ref("rides")
    rides.run(rides.broker.topics.delete("rides"))
    rides.create_topic("rides", partitions=2)
    refs = [old, {"topic_id": None}, rides.topic_ref("nowhere"), rides.topic_ref("rides")]
    asked = [{**ref, "partition_data": [{"index": 0, "records": batch()}]} for ref in refs]
    asked[-1]["partition_data"].append({"index": 9, "records": batch()})

    reply = rides.ask(Api.PRODUCE, 13, **{**request(), "topic_data": asked})

    assert [topic.topic_id for topic in reply.responses] == [ref["topic_id"] for ref in refs]
    assert [
        [(one.index, one.error_code) for one in topic.partition_responses]
        for topic in reply.responses
    ] == [
        [(0, UNKNOWN_TOPIC_ID)],
        [(0, UNKNOWN_TOPIC_ID)],
        [(0, UNKNOWN_TOPIC_ID)],
        [(0, 0), (9, UNKNOWN_TOPIC)],
    ]
    assert rides.offset("rides", at=LATEST) == 1


def test_a_batch_is_stored_as_it_came_but_for_offset_and_epoch(rides: RunningBroker) -> None:
    sent = batch(b"a", b"b", codec=Codec.ZSTD)
    send(rides, batch(b"x"))
    send(rides, sent)
    data = stored(rides)
    (_, _), (position, header) = walk_batches(data)
    assert (header.base_offset, header.leader_epoch) == (1, 0)
    assert data[position + 16 :] == sent[16:]


def test_several_partitions_are_answered_one_by_one_in_one_reply(rides: RunningBroker) -> None:
    reply = rides.ask(
        Api.PRODUCE,
        VERSION,
        **request(("rides", 1, batch()), ("rides", 9, batch()), ("nowhere", 0, batch())),
    )
    codes = {
        (topic.name, one.index): one.error_code
        for topic in reply.responses
        for one in topic.partition_responses
    }
    assert codes == {("rides", 1): 0, ("rides", 9): UNKNOWN_TOPIC, ("nowhere", 0): UNKNOWN_TOPIC}


def damaged(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (None, BAD_RECORD),
        (b"", CORRUPT),
        (damaged(batch()), CORRUPT),
        (batch() + batch(), BAD_RECORD),
        (batch(b"x" * 2_000_000), TOO_LARGE),
        (batch(base_offset=5), BAD_RECORD),
        (batch(is_control=True), BAD_RECORD),
        (batch(timestamp_ms=10**15), BAD_TIMESTAMP),
        (
            batch(producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True),
            NO_TRANSACTIONAL_ID,
        ),
    ],
)
def test_what_may_not_enter_is_refused_and_nothing_is_written(
    rides: RunningBroker, records: bytes | None, code: int
) -> None:
    answer = send(rides, records)
    assert (answer.error_code, answer.base_offset) == (code, -1)
    assert answer.error_message
    assert rides.offset("rides", at=LATEST) == 0


def test_zstd_needs_a_version_whose_readers_know_it(rides: RunningBroker) -> None:
    assert send(rides, batch(codec=Codec.ZSTD), version=6).error_code == BAD_CODEC
    assert send(rides, batch(codec=Codec.ZSTD), version=7).error_code == 0


def test_acks_other_than_0_1_and_all_are_refused(rides: RunningBroker) -> None:
    assert send(rides, batch(), acks=2).error_code == BAD_ACKS
    assert rides.offset("rides", at=LATEST) == 0


def test_acks_0_is_not_answered(rides: RunningBroker) -> None:
    frame = encode_request(Api.PRODUCE, VERSION, **request(("rides", 0, batch()), acks=0))
    assert list(rides.run(rides._answer(frame))) == []
    assert rides.offset("rides", at=LATEST) == 1


def test_an_error_with_acks_0_closes_the_connection(rides: RunningBroker) -> None:
    frame = encode_request(Api.PRODUCE, VERSION, **request(("nowhere", 0, batch()), acks=0))
    with pytest.raises(CloseConnection, match="nowhere-0"):
        rides.run(rides._answer(frame))


def test_more_replicas_are_not_asked_for_than_the_partition_has(
    running_broker: RunningBroker,
) -> None:
    running_broker.create_topic("safe", min_insync_replicas="2")
    assert send(running_broker, batch(), topic="safe").error_code == 0
    assert running_broker.offset("safe", at=LATEST) == 1


def test_a_retry_is_answered_as_the_first_try_was_and_written_once(rides: RunningBroker) -> None:
    tries = [batch(producer_id=7, producer_epoch=0, base_sequence=number) for number in range(3)]
    assert [send(rides, one).base_offset for one in tries] == [0, 1, 2]
    assert [send(rides, one).base_offset for one in tries] == [0, 1, 2]
    assert rides.offset("rides", at=LATEST) == 3


@pytest.mark.parametrize("crash", [False, True])
def test_a_retry_after_a_restart_is_recognised(rides: RunningBroker, crash: bool) -> None:
    tries = [batch(producer_id=7, producer_epoch=0, base_sequence=number) for number in range(4)]
    for one in tries:
        send(rides, one)
    rides.restart(crash=crash)
    assert [send(rides, one).base_offset for one in tries] == [0, 1, 2, 3]
    assert rides.offset("rides", at=LATEST) == 4


def test_a_batch_behind_one_that_came_too_early_is_refused_as_that_was(
    rides: RunningBroker,
) -> None:
    """Two are under way, and the broker begins to lead between them.

    librdkafka took the second one's answer for a gap, began anew in another epoch, and wrote others twice.
    """
    role = rides.broker.partitions.find("rides", 0).role
    first, second = (
        batch(producer_id=7, producer_epoch=0, base_sequence=number) for number in range(2)
    )
    leader, role.leader = role.leader, None
    assert send(rides, first).error_code == NOT_LEADER
    role.leader = leader
    assert send(rides, second).error_code == NOT_LEADER
    assert [send(rides, one).error_code for one in (first, second)] == [0, 0]
    # The same of one whose producer is known here.
    third, fourth = (
        batch(producer_id=7, producer_epoch=0, base_sequence=number) for number in (2, 3)
    )
    leader, role.leader = role.leader, None
    assert send(rides, third).error_code == NOT_LEADER
    role.leader = leader
    assert send(rides, fourth).error_code == NOT_LEADER
    assert [send(rides, one).error_code for one in (third, fourth)] == [0, 0]
    # Nothing is remembered of it.
    gap = batch(producer_id=7, producer_epoch=0, base_sequence=9)
    assert send(rides, gap).error_code == OUT_OF_ORDER


def test_a_gap_in_the_sequence_and_an_older_epoch_are_refused(rides: RunningBroker) -> None:
    send(rides, batch(producer_id=7, producer_epoch=1, base_sequence=0))
    gap = batch(producer_id=7, producer_epoch=1, base_sequence=5)
    stale = batch(producer_id=7, producer_epoch=0, base_sequence=1)
    assert send(rides, gap).error_code == OUT_OF_ORDER
    assert send(rides, stale).error_code == STALE_EPOCH
    assert rides.offset("rides", at=LATEST) == 1


def test_the_brokers_time_replaces_the_producers_where_the_topic_says_so(
    running_broker: RunningBroker,
) -> None:
    running_broker.create_topic("clocked", message_timestamp_type="LogAppendTime")
    running_broker.clock.advance(5_000)
    answer = send(running_broker, batch(timestamp_ms=1), topic="clocked")
    header = read_header(stored(running_broker, "clocked"))
    now_ms = running_broker.clock.now_ms()
    assert header.is_log_append_time
    assert header.max_timestamp == now_ms
    assert answer.log_append_time.timestamp() * 1000 == now_ms


@pytest.mark.parametrize(
    ("wanted", "codec"),
    [("uncompressed", Codec.NONE), ("gzip", Codec.GZIP), ("zstd", Codec.ZSTD), ("lz4", Codec.LZ4)],
)
def test_a_topics_own_codec_is_what_is_stored(
    running_broker: RunningBroker, wanted: str, codec: Codec
) -> None:
    running_broker.create_topic("packed", compression_type=wanted)
    assert (
        send(running_broker, batch(b"a" * 500, codec=Codec.SNAPPY), topic="packed").error_code == 0
    )
    data = stored(running_broker, "packed")
    header = read_header(data)
    assert header.codec_bits == codec
    assert [one.value for one in read_records(RecordBatch(header, data), limit=10_000)] == [
        b"a" * 500
    ]


def test_a_topics_compression_level_is_that_of_what_is_stored(
    running_broker: RunningBroker,
) -> None:
    values = [b'{"ride": %d, "driver": "d%d", "fare": %d}' % (n, n % 7, n * n) for n in range(500)]
    sizes = {}
    for codec, low, high in (("gzip", "1", "9"), ("lz4", "3", "12"), ("zstd", "-7", "19")):
        for level in (low, high):
            name = f"{codec}{level}"
            levels = {f"compression_{codec}_level": level}
            running_broker.create_topic(name, partitions=1, compression_type=codec, **levels)
            assert send(running_broker, batch(*values), topic=name).error_code == 0
            data = stored(running_broker, name)
            header = read_header(data)
            found = read_records(RecordBatch(header, data), limit=100_000)
            assert [one.value for one in found] == values
            sizes[name] = len(data)
        assert sizes[f"{codec}{high}"] < sizes[f"{codec}{low}"]


def test_a_batch_in_the_topics_codec_keeps_its_producers_level(
    running_broker: RunningBroker,
) -> None:
    running_broker.create_topic("packed", compression_type="gzip", compression_gzip_level="9")
    sent = batch(b"a" * 500, b"b" * 300, codec=Codec.GZIP)
    assert send(running_broker, sent, topic="packed").error_code == 0
    assert stored(running_broker, "packed")[16:] == sent[16:]


def test_a_batch_too_large_in_the_topics_codec_is_refused(running_broker: RunningBroker) -> None:
    running_broker.create_topic("packed", compression_type="uncompressed", max_message_bytes="1000")
    bomb = batch(b"a" * 100_000, codec=Codec.ZSTD)
    assert len(bomb) < 1000
    assert send(running_broker, bomb, topic="packed").error_code == TOO_LARGE
    assert running_broker.offset("packed", at=LATEST) == 0


def test_an_answer_waits_for_the_sync_and_later_requests_do_not_wait_for_it(
    rides: RunningBroker,
) -> None:
    async def story() -> None:
        rides.offload.hold()
        outcomes = [
            handle(
                decode_request(
                    encode_request(Api.PRODUCE, VERSION, **request(("rides", 0, batch())))
                ),
                rides.broker,
            )
            for _ in range(3)
        ]
        replies = []
        for outcome in outcomes:
            assert isinstance(outcome, Pipelined)
            replies.append(asyncio.ensure_future(outcome.wait()))
        await asyncio.sleep(0)
        assert rides.broker.partitions.find("rides", 0).log.log_end == 3
        assert not any(reply.done() for reply in replies)
        rides.offload.release()
        answers = await asyncio.gather(*replies)
        offsets = [
            decode_reply(Api.PRODUCE, VERSION, b"".join(one))
            .responses[0]
            .partition_responses[0]
            .base_offset
            for one in answers
        ]
        assert offsets == [0, 1, 2]

    rides.run(story())


def test_an_answer_that_waits_for_the_sync_holds_no_records(rides: RunningBroker) -> None:
    async def story() -> None:
        rides.offload.hold()
        frame = encode_request(
            Api.PRODUCE, VERSION, **request(("rides", 0, batch()), ("rides", 1, damaged(batch())))
        )
        decoded = decode_request(frame)
        records = [one.records for one in decoded.body.topic_data[0].partition_data]
        outcome = handle(decoded, rides.broker)
        assert isinstance(outcome, Pipelined)
        del decoded
        # Its log may still have it in memory: how much of that, settings say.
        rides.forget_tails()
        counts = [sys.getrefcount(one) for one in records]
        rides.offload.release()
        await outcome.wait()
        # The list, the loop's name and the function asked are all that knew them.
        assert counts == [3, 3]

    rides.run(story())


def test_a_topic_deleted_while_its_batch_is_recompressed_is_told_to_the_producer(
    running_broker: RunningBroker,
) -> None:
    running_broker.create_topic("packed", compression_type="gzip")

    async def story() -> None:
        running_broker.offload.hold()
        frame = encode_request(Api.PRODUCE, VERSION, **request(("packed", 0, batch())))
        outcome = handle(decode_request(frame), running_broker.broker)
        assert isinstance(outcome, Coroutine)
        reply = asyncio.ensure_future(outcome)
        while not running_broker.offload.held:
            await asyncio.sleep(0)
        # This is the moment in a deletion from which the partition is out of service.
        log = running_broker.broker.partitions.find("packed", 0).detach()
        running_broker.offload.release()
        answer = decode_reply(Api.PRODUCE, VERSION, b"".join(await reply))
        assert answer.responses[0].partition_responses[0].error_code == NOT_LEADER
        assert log is not None
        log.close()

    running_broker.run(story())


def test_a_commit_that_does_not_come_in_time_is_told_and_the_record_may_stay(
    rides: RunningBroker,
) -> None:
    async def story() -> None:
        rides.offload.hold()
        frame = encode_request(Api.PRODUCE, VERSION, **request(("rides", 0, batch()), timeout=1))
        outcome = handle(decode_request(frame), rides.broker)
        assert isinstance(outcome, Pipelined)
        reply = decode_reply(Api.PRODUCE, VERSION, b"".join(await outcome.wait()))
        assert reply.responses[0].partition_responses[0].error_code == TIMED_OUT
        rides.offload.release()
        await rides.broker.flusher.drain()

    rides.run(story())
    assert rides.offset("rides", at=LATEST) == 1


def test_whoever_waits_is_told_when_the_disk_fails(rides: RunningBroker) -> None:
    rides.disk.faults.fail("sync", path="rides-0/*.log")
    assert send(rides, batch()).error_code == STORAGE_ERROR
    assert send(rides, batch()).error_code == STORAGE_ERROR
    reply = rides.ask(Api.PRODUCE, VERSION, **request(("rides", 1, batch())))
    assert reply.responses[0].partition_responses[0].error_code == 0


def test_whoever_waits_is_told_when_the_topic_is_deleted(rides: RunningBroker) -> None:
    async def story() -> Any:
        rides.offload.hold()
        outcome = handle(
            decode_request(encode_request(Api.PRODUCE, VERSION, **request(("rides", 0, batch())))),
            rides.broker,
        )
        assert isinstance(outcome, Pipelined)
        deletion = asyncio.ensure_future(rides.broker.topics.delete("rides"))
        while len(rides.broker.partitions) == 2:
            await asyncio.sleep(0)
        rides.offload.release()
        await deletion
        return decode_reply(Api.PRODUCE, VERSION, b"".join(await outcome.wait()))

    reply = rides.run(story())
    assert reply.responses[0].partition_responses[0].error_code == 6


def test_after_a_power_cut_what_was_acknowledged_is_there(start_broker: StartBroker) -> None:
    broker = start_broker()
    broker.create_topic("rides")
    offsets = [send(broker, batch(bytes([number]))).base_offset for number in range(20)]
    broker.restart(crash=True)
    assert offsets == list(range(20))
    assert (broker.offset("rides", at=EARLIEST), broker.offset("rides", at=LATEST)) == (0, 20)


def test_a_name_too_long_for_a_reply_costs_nobody_an_answer(rides: RunningBroker) -> None:
    # Its error message did not fit the reply; the sync's other waiters were forgotten with it.
    reply = rides.ask(Api.PRODUCE, 8, **request(("rides", 0, batch()), ("x" * 32_000, 0, batch())))
    codes = [topic.partition_responses[0].error_code for topic in reply.responses]
    assert codes[0] == 0
    assert codes[1] != 0
    assert send(rides, batch()).error_code == 0


def test_a_retry_is_told_the_time_of_its_first_try(running_broker: RunningBroker) -> None:
    running_broker.create_topic("clocked", message_timestamp_type="LogAppendTime")
    one = batch(producer_id=7, producer_epoch=0, base_sequence=0)
    first = send(running_broker, one, topic="clocked")
    running_broker.clock.advance(5_000)
    assert send(running_broker, one, topic="clocked").log_append_time == first.log_append_time
