"""Compaction as the broker does it: which log, when, and what happens when something comes between."""

import asyncio
import logging
from typing import Any

import pytest

from broker.running_broker import RunningBroker, StartBroker
from respool.log.partition_log import PartitionLog, ReadSpec
from respool.model.ids import Offset
from respool.records.batch import Codec, RecordBatch, read_header, seal
from respool.records.build import NewRecord, build_batch
from respool.records.record import Record, read_records
from respool.records.validate import walk_batches
from respool.wire.api_table import Api

COMPACT: dict[str, Any] = {
    "cleanup_policy": "compact",
    "segment_bytes": "1024",
    "min_cleanable_dirty_ratio": "0.1",
}


def produce(broker: RunningBroker, *records: NewRecord, topic: str = "rides", **fields: Any) -> Any:
    data = {"index": 0, "records": build_batch(records, **fields)}
    reply = broker.ask(
        Api.PRODUCE,
        9,
        transactional_id=None,
        acks=-1,
        timeout=1000,
        topic_data=[{"name": topic, "partition_data": [data]}],
    )
    return reply.responses[0].partition_responses[0]


def fill(broker: RunningBroker, *, topic: str = "rides", batches: int = 30, keys: int = 3) -> None:
    for number in range(batches):
        record = NewRecord(
            key=b"%d" % (number % keys),
            value=b"%d" % number + b"." * 100,
            timestamp_ms=broker.clock.now_ms(),
        )
        assert produce(broker, record, topic=topic).error_code == 0


def log_of(broker: RunningBroker, topic: str = "rides") -> PartitionLog:
    return broker.broker.partitions.find(topic, 0).log


def stored(broker: RunningBroker, topic: str = "rides") -> list[Record]:
    log = log_of(broker, topic)
    found: list[Record] = []
    offset = log.log_start
    while offset < log.log_end:
        data = log.read(ReadSpec(offset, max_offset=log.log_end, bytes_max=1 << 20))
        for position, header in walk_batches(data):
            batch = RecordBatch(header, data[position : position + header.size])
            found += read_records(batch, limit=1 << 20)
            offset = header.next_offset
    return found


def compact(broker: RunningBroker) -> bool:
    return broker.run(broker.broker.housekeeping._compactor.compact_dirtiest())


def names(broker: RunningBroker, ending: str, folder: str = "rides-0") -> list[str]:
    return [name for name in broker.disk.list_folder(folder) if name.endswith(ending)]


def test_a_compacted_topic_keeps_the_newest_of_each_key(running_broker: RunningBroker) -> None:
    running_broker.create_topic("rides", **COMPACT)
    fill(running_broker)
    before = {one.key: one.value for one in stored(running_broker)}

    assert compact(running_broker)
    assert not compact(running_broker)

    after = stored(running_broker)
    assert len(after) < 15
    assert {one.key: one.value for one in after} == before
    assert [one.offset for one in after] == sorted(one.offset for one in after)


def test_it_happens_by_itself(start_broker: StartBroker) -> None:
    broker = start_broker(compaction_check_ms=10)
    broker.create_topic("rides", **COMPACT)
    fill(broker)

    async def wait() -> None:
        async with asyncio.timeout(60):
            while len(stored(broker)) >= 15:
                await asyncio.sleep(0.01)

    broker.run(wait())
    assert log_of(broker).cleaned_end > 0


def test_topics_that_are_not_compacted_are_left_alone(running_broker: RunningBroker) -> None:
    running_broker.create_topic("rides", segment_bytes="1024")
    fill(running_broker)
    assert not compact(running_broker)
    assert len(stored(running_broker)) == 30


def test_the_dirtiest_log_comes_first(running_broker: RunningBroker) -> None:
    for topic in ("half", "all"):
        running_broker.create_topic(topic, **COMPACT)
    fill(running_broker, topic="half")
    assert compact(running_broker)
    fill(running_broker, topic="half", batches=15)
    fill(running_broker, topic="all")
    assert compact(running_broker)
    assert log_of(running_broker, "all").cleaned_end > 0
    assert compact(running_broker)
    assert not compact(running_broker)


def test_how_far_a_log_is_compacted_survives_a_restart(running_broker: RunningBroker) -> None:
    running_broker.create_topic("rides", **COMPACT)
    fill(running_broker)
    compact(running_broker)
    cleaned_end, content = log_of(running_broker).cleaned_end, stored(running_broker)
    assert cleaned_end > 0

    running_broker.restart()
    assert log_of(running_broker).cleaned_end == cleaned_end
    assert stored(running_broker) == content
    assert not compact(running_broker)
    assert running_broker.disk.read_file("cleaner-offset-checkpoint") == (
        b"0\n1\nrides 0 %d\n" % cleaned_end
    )


def test_a_crash_after_a_compaction_loses_nothing(running_broker: RunningBroker) -> None:
    running_broker.create_topic("rides", **COMPACT)
    fill(running_broker)
    compact(running_broker)
    content = stored(running_broker)
    running_broker.restart(crash=True)
    assert stored(running_broker) == content


def test_a_log_that_was_compacted_once_is_recovered_when_it_no_longer_is(
    running_broker: RunningBroker,
) -> None:
    """The gaps that are left must not be taken for damage."""
    running_broker.create_topic("rides", **COMPACT)
    fill(running_broker)
    compact(running_broker)
    running_broker.run(running_broker.broker.housekeeping.checkpoint())
    running_broker.run(
        running_broker.broker.topics.change_overrides(
            "rides", lambda _: {"cleanup.policy": "delete", "segment.bytes": "1024"}
        )
    )
    content = stored(running_broker)
    # Without these, recovery begins with the compacted segments.
    running_broker.disk.delete("recovery-point-offset-checkpoint")
    for name in names(running_broker, ".snapshot"):
        running_broker.disk.delete(f"rides-0/{name}")
    running_broker.restart(crash=True)
    assert stored(running_broker) == content


def test_the_replaced_files_are_deleted_after_their_time(running_broker: RunningBroker) -> None:
    running_broker.create_topic("rides", **COMPACT, file_delete_delay_ms="0")
    fill(running_broker)
    compact(running_broker)

    async def wait() -> None:
        async with asyncio.timeout(60):
            while names(running_broker, ".deleted"):
                await asyncio.sleep(0.001)

    running_broker.run(wait())


def test_nothing_beyond_the_high_watermark_is_compacted(running_broker: RunningBroker) -> None:
    running_broker.create_topic("rides", **COMPACT)
    fill(running_broker)
    partition = running_broker.broker.partitions.find("rides", 0)
    partition.watermarks.high_watermark = partition.watermarks.stable_offset = Offset(1)
    assert not compact(running_broker)


# -- when something comes between --------------------------------------------------------------------------------------


def test_a_topic_that_is_deleted_meanwhile_ends_its_compaction(
    running_broker: RunningBroker,
) -> None:
    running_broker.create_topic("rides", **COMPACT)
    running_broker.create_topic("other")
    fill(running_broker)
    running_broker.offload.hold()
    task = running_broker.start(running_broker.broker.housekeeping._compactor.compact_dirtiest())
    deletion = running_broker.start(running_broker.broker.topics.delete("rides"))
    running_broker.offload.release()
    assert running_broker.finish(task)
    running_broker.finish(deletion)
    # A new topic of that name has nothing of the old one.
    running_broker.create_topic("rides", **COMPACT)
    assert stored(running_broker) == []
    assert names(running_broker, ".cleaned") == []
    fill(running_broker)
    assert compact(running_broker)


def test_appends_and_fetches_go_on_meanwhile(running_broker: RunningBroker) -> None:
    running_broker.create_topic("rides", **COMPACT)
    fill(running_broker)
    # Slices are held back; syncs too, so what is appended is not committed before they go on.
    running_broker.offload.hold()
    task = running_broker.start(running_broker.broker.housekeeping._compactor.compact_dirtiest())
    assert len(stored(running_broker)) == 30
    running_broker.offload.release()
    assert running_broker.finish(task)
    fill(running_broker, batches=2)
    assert len(stored(running_broker)) < 20


def test_a_stop_does_not_wait_for_the_end(running_broker: RunningBroker) -> None:
    running_broker.create_topic("rides", **COMPACT)
    fill(running_broker)
    running_broker.offload.hold()
    compaction = running_broker.broker.housekeeping._compactor.compact_dirtiest()
    running_broker.start(_quietly(compaction)).cancel()
    running_broker.offload.release()
    running_broker.restart()
    assert len(stored(running_broker)) == 30
    assert names(running_broker, ".cleaned") == []
    assert compact(running_broker)


async def _quietly(work: Any) -> Any:
    return await work


# -- failures ----------------------------------------------------------------------------------------------------------


def test_a_full_disk_is_no_reason_to_give_up(
    running_broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    running_broker.create_topic("rides", **COMPACT)
    fill(running_broker)
    running_broker.disk.faults.capacity_bytes = 0
    assert not compact(running_broker)
    assert "no room to compact it now" in caplog.text
    assert len(stored(running_broker)) == 30
    running_broker.disk.faults.heal()
    assert compact(running_broker)


def test_a_damaged_log_is_served_on_and_not_tried_again(
    running_broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    running_broker.create_topic("rides", **COMPACT)
    fill(running_broker)
    running_broker.disk.corrupt("rides-0/00000000000000000000.log", 100)
    with caplog.at_level(logging.ERROR):
        # It looks for another log, and there is none.
        assert compact(running_broker)
        assert not compact(running_broker)
    assert caplog.text.count("cannot be compacted") == 1
    assert running_broker.broker.partitions.find("rides", 0).is_online
    assert names(running_broker, ".cleaned") == []


def test_a_swap_that_fails_takes_the_partition_offline_and_a_restart_brings_it_back(
    running_broker: RunningBroker,
) -> None:
    running_broker.create_topic("rides", **COMPACT)
    fill(running_broker)
    before = {one.key: one.value for one in stored(running_broker)}
    running_broker.disk.faults.fail("rename", path="*.log", times=1)
    assert compact(running_broker)
    assert not running_broker.broker.partitions.find("rides", 0).is_online
    running_broker.restart()
    assert {one.key: one.value for one in stored(running_broker)} == before


# -- records without a key ---------------------------------------------------------------------------------------------

INVALID_RECORD, CORRUPT, POLICY_VIOLATION = 87, 2, 44


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("size", [10, 1000])
def test_one_record_without_a_key_fails_its_batch(
    running_broker: RunningBroker, codec: Codec, size: int
) -> None:
    running_broker.create_topic("rides", **COMPACT, max_message_bytes="1000000")
    good = [NewRecord(key=b"k", value=b"v" * size) for _ in range(30)]
    bad = [*good[:7], NewRecord(key=None, value=b"v"), *good[7:]]
    answer = produce(running_broker, *bad, codec=codec)
    assert answer.error_code == INVALID_RECORD
    assert [one.batch_index for one in answer.record_errors] == [7]
    assert "no key" in answer.error_message
    assert log_of(running_broker).log_end == 0
    assert produce(running_broker, *good, codec=codec).error_code == 0
    assert log_of(running_broker).log_end == 30


def test_other_topics_take_records_without_a_key(running_broker: RunningBroker) -> None:
    running_broker.create_topic("rides")
    assert produce(running_broker, NewRecord(key=None, value=b"v")).error_code == 0


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_that_does_not_hold_its_records_is_refused(
    running_broker: RunningBroker, codec: Codec
) -> None:
    running_broker.create_topic("rides", **COMPACT)
    good = build_batch([NewRecord(key=b"k", value=b"v")], codec=codec)
    batch = seal(read_header(good), b"not what it should be")
    data = {"index": 0, "records": bytes(batch.data)}
    reply = running_broker.ask(
        Api.PRODUCE,
        9,
        transactional_id=None,
        acks=-1,
        timeout=1000,
        topic_data=[{"name": "rides", "partition_data": [data]}],
    )
    answer = reply.responses[0].partition_responses[0]
    assert answer.error_code == (CORRUPT if codec else INVALID_RECORD)
    assert log_of(running_broker).log_end == 0


def test_a_topic_wants_keys_from_the_moment_it_is_compacted(
    running_broker: RunningBroker,
) -> None:
    running_broker.create_topic("rides")
    assert produce(running_broker, NewRecord(key=None, value=b"v")).error_code == 0
    running_broker.run(
        running_broker.broker.topics.change_overrides(
            "rides", lambda _: {"cleanup.policy": "compact,delete"}
        )
    )
    assert produce(running_broker, NewRecord(key=None, value=b"v")).error_code == INVALID_RECORD


def test_a_compacted_topic_can_be_recompressed_too(running_broker: RunningBroker) -> None:
    running_broker.create_topic("rides", **COMPACT, compression_type="gzip")
    assert produce(running_broker, NewRecord(key=b"k", value=b"v")).error_code == 0
    assert produce(running_broker, NewRecord(value=b"v")).error_code == INVALID_RECORD
    data = log_of(running_broker).read(ReadSpec(Offset(0), max_offset=Offset(1), bytes_max=1000))
    assert read_header(data).codec_bits == 1


def test_records_of_a_topic_that_is_only_compacted_are_not_deleted(
    running_broker: RunningBroker,
) -> None:
    running_broker.create_topic("rides", **COMPACT)
    fill(running_broker, batches=2)
    reply = running_broker.ask(
        Api.DELETE_RECORDS,
        2,
        topics=[{"name": "rides", "partitions": [{"partition_index": 0, "offset": 1}]}],
        timeout=1000,
    )
    assert reply.topics[0].partitions[0].error_code == POLICY_VIOLATION
    assert log_of(running_broker).log_start == 0
