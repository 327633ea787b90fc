"""Which records of a batch are at fault: all of them are named, not only the first (KIP-467)."""

from typing import Any

import pytest

from broker.running_broker import LATEST, RunningBroker
from respool.broker.handlers.messages.produce import NAMED_BATCHES_MAX, REPLY_RECORDS_MAX
from respool.model.errors import RecordsRefused
from respool.records.batch import HEADER_BYTES, Codec, read_header, seal
from respool.records.build import NewRecord, build_batch
from respool.wire.api_table import Api

BAD_TIMESTAMP, BAD_RECORD = 32, 87
HOUR_MS = 3_600_000


def send(broker: RunningBroker, *batches: bytes, version: int = 12) -> list[Any]:
    """One batch for each partition."""
    data = [{"index": index, "records": records} for index, records in enumerate(batches)]
    reply = broker.ask(
        Api.PRODUCE,
        version,
        transactional_id=None,
        acks=-1,
        timeout=1000,
        topic_data=[{"name": "rides", "partition_data": data}],
    )
    return list(reply.responses[0].partition_responses)


def keyed(*keys: bytes | None, **fields: Any) -> bytes:
    return build_batch([NewRecord(key=key, value=b"v") for key in keys], **fields)


def timed(*times_ms: int, **fields: Any) -> bytes:
    return build_batch([NewRecord(value=b"v", timestamp_ms=time) for time in times_ms], **fields)


def named(answer: Any) -> list[int]:
    return [one.batch_index for one in answer.record_errors]


@pytest.mark.parametrize("codec", list(Codec))
def test_every_record_without_a_key_is_named(running_broker: RunningBroker, codec: Codec) -> None:
    running_broker.create_topic("rides", cleanup_policy="compact")
    (answer,) = send(running_broker, keyed(b"a", None, b"b", None, None, codec=codec))
    assert (answer.error_code, named(answer)) == (BAD_RECORD, [1, 3, 4])
    assert answer.error_message == "3 of 5 records have no key, and the topic is compacted"
    assert {one.batch_index_error_message for one in answer.record_errors} == {
        "the record has no key, and the topic is compacted"
    }
    assert running_broker.offset("rides", at=LATEST) == 0


@pytest.mark.parametrize("codec", list(Codec))
def test_every_record_from_the_future_is_named(running_broker: RunningBroker, codec: Codec) -> None:
    running_broker.create_topic("rides", message_timestamp_after_max_ms=str(HOUR_MS))
    now_ms = running_broker.clock.now_ms()
    times = (now_ms, now_ms + 2 * HOUR_MS, -1, now_ms + HOUR_MS, now_ms + HOUR_MS + 1)
    (answer,) = send(running_broker, timed(*times, codec=codec))
    assert (answer.error_code, named(answer)) == (BAD_TIMESTAMP, [1, 4])
    assert str(times[1]) in answer.record_errors[0].batch_index_error_message
    assert str(times[4]) in answer.record_errors[1].batch_index_error_message
    assert running_broker.offset("rides", at=LATEST) == 0


def test_every_record_that_is_too_old_is_named(running_broker: RunningBroker) -> None:
    running_broker.create_topic("rides", message_timestamp_before_max_ms=str(HOUR_MS))
    now_ms = running_broker.clock.now_ms()
    (answer,) = send(running_broker, timed(now_ms - 2 * HOUR_MS, now_ms, now_ms - 3 * HOUR_MS))
    assert (answer.error_code, named(answer)) == (BAD_TIMESTAMP, [0, 2])


def test_others_of_the_request_are_written(running_broker: RunningBroker) -> None:
    running_broker.create_topic("rides", partitions=2)
    now_ms = running_broker.clock.now_ms()
    bad, good = send(running_broker, timed(now_ms + 2 * HOUR_MS), timed(now_ms))
    assert (bad.error_code, named(bad)) == (BAD_TIMESTAMP, [0])
    assert (good.error_code, good.base_offset) == (0, 0)


def test_replies_without_a_place_for_records_name_none(running_broker: RunningBroker) -> None:
    running_broker.create_topic("rides")
    late = timed(running_broker.clock.now_ms() + 2 * HOUR_MS)
    (answer,) = send(running_broker, late, version=7)
    assert answer.error_code == BAD_TIMESTAMP


def test_very_many_records_at_fault_are_counted_and_the_first_are_named(
    running_broker: RunningBroker,
) -> None:
    partitions = 2 * REPLY_RECORDS_MAX // RecordsRefused.RECORDS_MAX
    running_broker.create_topic("rides", partitions=partitions, cleanup_policy="compact")
    many = keyed(*[None] * (RecordsRefused.RECORDS_MAX + 5), codec=Codec.ZSTD)
    answers = send(running_broker, *[many] * partitions)
    assert {one.error_code for one in answers} == {BAD_RECORD}
    assert named(answers[0]) == list(range(RecordsRefused.RECORDS_MAX))
    assert answers[0].error_message.startswith("1,005 of 1,005 records have")
    assert sum(len(one.record_errors) for one in answers) == REPLY_RECORDS_MAX
    assert answers[-1].record_errors == ()


def test_in_a_request_of_many_wrong_times_few_batches_are_read(
    running_broker: RunningBroker,
) -> None:
    running_broker.create_topic("rides", partitions=NAMED_BATCHES_MAX + 2)
    late = timed(running_broker.clock.now_ms() + 2 * HOUR_MS)
    answers = send(running_broker, *[late] * (NAMED_BATCHES_MAX + 2))
    assert {one.error_code for one in answers} == {BAD_TIMESTAMP}
    assert [named(one) for one in answers] == [[0]] * NAMED_BATCHES_MAX + [[], []]


def test_a_batch_whose_records_cannot_be_read_quickly_is_refused_as_a_whole(
    running_broker: RunningBroker,
) -> None:
    running_broker.create_topic("rides", partitions=2)
    late_ms = running_broker.clock.now_ms() + 2 * HOUR_MS
    packed = build_batch(
        [NewRecord(value=bytes(2_000_000), timestamp_ms=late_ms)], codec=Codec.ZSTD
    )
    whole = timed(late_ms)
    damaged = bytes(seal(read_header(whole), b"\xff" * (len(whole) - HEADER_BYTES)).data)
    for answer in send(running_broker, packed, damaged):
        assert (answer.error_code, named(answer)) == (BAD_TIMESTAMP, [])
        assert str(late_ms) in answer.error_message
