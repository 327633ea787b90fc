"""Fetches of views, from request bytes to reply bytes. Many are named for what went wrong elsewhere, or nearly did."""

import asyncio
import gc
from dataclasses import replace
from typing import Any

import pytest

from broker.running_broker import RunningBroker, StartBroker
from broker.transaction_client import Producer, settle, start_with_transactions
from broker.views.reading import Client, headers_in
from broker.views.view_broker import (
    BY_ID,
    BY_NAME,
    add_view,
    append,
    fetch,
    fetch_fields,
    produce,
)
from broker.wire_client import decode_reply, encode_request, versions
from respool.broker.dispatch import handle
from respool.broker.fetch.readers import ConsumerReader
from respool.broker.fetch.sessions import FetchTarget
from respool.broker.partitions.partition import Partition
from respool.model.ids import Offset
from respool.records.batch import HEADER_BYTES, Codec, RecordBatch, pack_header, read_header, seal
from respool.records.build import NewRecord, build_batch
from respool.records.markers import MARKER_BYTES
from respool.wire.api_table import Api
from respool.wire.codec import decode_request
from respool.wire.hot_replies import FetchedPartition

OUT_OF_RANGE, CORRUPT, UNKNOWN_TOPIC, BAD_CODEC, UNKNOWN_TOPIC_ID = 1, 2, 3, 76, 100
STORAGE_FAILED = 56
PAID = "rides.v.paid"
BASE_OFFSET_BYTES = 8


@pytest.fixture
def rides(start_broker: StartBroker) -> RunningBroker:
    broker = start_broker()
    broker.create_topic("rides", partitions=3)
    add_view(broker, PAID, "tag = 'paid'")
    return broker


def shown(part: Any, *, offset: int = 0) -> list[tuple[int, bytes | None]]:
    assert part.error_code == 0
    client = Client(offset)
    client.take(part.records or b"")
    return [(int(one.offset), one.value) for one in client.records]


def position_after(part: Any, *, offset: int = 0) -> int:
    client = Client(offset)
    client.take(part.records or b"")
    return client.position


@pytest.mark.parametrize("version", versions(Api.FETCH))
def test_every_version_shows_the_matching_records_at_the_parents_offsets(
    rides: RunningBroker, version: int
) -> None:
    produce(rides, "new", "paid")
    produce(rides, "new", "new")
    produce(rides, "paid", "paid")
    view_id = rides.broker.image.views[PAID].id
    part = fetch(rides, PAID, version=version, topic_id=view_id)
    assert shown(part) == [(1, b"paid"), (4, b"paid"), (5, b"paid")]
    assert part.high_watermark == 6


def test_a_batch_that_matches_as_a_whole_is_sent_as_it_is_stored(rides: RunningBroker) -> None:
    produce(rides, "paid", "paid", codec=Codec.ZSTD)
    assert fetch(rides, PAID).records == fetch(rides, "rides").records


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_of_any_codec_is_sifted(rides: RunningBroker, codec: Codec) -> None:
    produce(rides, *["new"] * 20, "paid", *["new"] * 20, codec=codec)
    part = fetch(rides, PAID)
    assert shown(part) == [(20, b"paid")]
    assert position_after(part) == 41


def test_cold_bytes_are_sifted_elsewhere_and_show_the_same(rides: RunningBroker) -> None:
    produce(rides, "new", "paid")
    rides.forget_tails()
    rides.disk.make_cold("rides-0/00000000000000000000.log")
    assert shown(fetch(rides, PAID)) == [(1, b"paid")]


def test_readers_of_a_view_share_what_was_found_out(rides: RunningBroker) -> None:
    produce(rides, "new", "paid")
    first = fetch(rides, PAID).records
    assert fetch(rides, PAID).records == first
    assert rides.metrics.value("respool_view_rebuilt_batches_total") == 1
    assert rides.metrics.value("respool_view_sent_bytes_total") == 2 * len(first)


def test_a_reader_on_this_machine_is_sent_what_it_may_see(rides: RunningBroker) -> None:
    produce(rides, "new", "paid")
    view_id = rides.broker.image.views[PAID].id
    fields = fetch_fields(PAID, topic_id=view_id) | {"reader_host": rides.local_reader.host}
    (topic,) = rides.ask(Api.FETCH, BY_ID, **fields).responses
    assert shown(topic.partitions[0]) == [(1, b"paid")]


def test_a_mirror_sees_no_more_of_a_view_than_others(
    rides: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("respool.broker.handlers.messages.fetch.MIRROR_CLIENT_ID", "tester")
    produce(rides, "new", "paid")
    assert shown(fetch(rides, PAID)) == [(1, b"paid")]


@pytest.mark.parametrize(("version", "code"), [(BY_NAME, UNKNOWN_TOPIC), (BY_ID, UNKNOWN_TOPIC)])
def test_a_view_ends_with_its_parent_also_if_that_is_made_again(
    rides: RunningBroker, version: int, code: int
) -> None:
    produce(rides, "paid")
    views = rides.broker.image.views
    rides.run(rides.broker.topics.delete("rides"))
    settle(rides)
    rides.create_topic("rides")
    produce(rides, "paid")
    add_view(rides, "another", "tag = 'x'")
    image = rides.broker.image
    object.__setattr__(image, "views", views)
    object.__setattr__(image, "views_by_id", {one.id: one for one in views.values()})
    part = fetch(rides, PAID, version=version, topic_id=views[PAID].id)
    assert part.error_code == code


def test_an_unknown_view_is_an_unknown_topic(rides: RunningBroker) -> None:
    assert fetch(rides, "rides.v.nothing").error_code == UNKNOWN_TOPIC
    unknown = fetch(rides, "", version=BY_ID, topic_id=rides.topic_ref("nothing")["topic_id"])
    assert unknown.error_code == UNKNOWN_TOPIC_ID


# -- skips -----------------------------------------------------------------------------------------


def test_a_skip_is_a_control_record_and_never_an_empty_batch(rides: RunningBroker) -> None:
    """From the eleventh reply with an empty batch on, librdkafka raises MSG_SIZE_TOO_LARGE to the application."""
    produce(rides, "new", "new")
    data = fetch(rides, PAID).records
    header = read_header(data)
    assert (len(data), header.record_count, header.is_control) == (MARKER_BYTES, 1, True)
    assert headers_in(data) == [(1, 1, True)]


def test_a_skip_marker_ends_no_producers_transaction(rides: RunningBroker) -> None:
    """With the id of an aborted producer it would end that one's abort in the client."""
    produce(rides, "new", producer_id=-1)
    header = read_header(fetch(rides, PAID).records)
    assert (header.producer_id, header.producer_epoch) == (-1, -1)


def test_the_marker_follows_the_last_shown_record_within_its_batch(rides: RunningBroker) -> None:
    produce(rides, "paid", "new", "new")
    assert headers_in(fetch(rides, PAID).records) == [(0, 0, False), (2, 2, True)]


def test_a_fetch_of_a_quiet_end_is_answered_with_a_marker_at_its_maximum_wait(
    rides: RunningBroker,
) -> None:
    produce(rides, "paid", "new", "new")
    part = fetch(rides, PAID, offset=1, max_wait=5)
    assert headers_in(part.records) == [(2, 2, True)]
    part = fetch(rides, PAID, offset=3, max_wait=5)
    assert not part.records


def test_what_is_not_shown_does_not_end_a_wait_and_what_is_shown_does(
    rides: RunningBroker,
) -> None:
    def send(*tags: str) -> Any:
        records = [
            NewRecord(value=b"v", timestamp_ms=0, headers=(("tag", tag.encode()),)) for tag in tags
        ]
        data = {"index": 0, "records": build_batch(records)}
        topic = {"name": "rides", "partition_data": [data]}
        fields = {"transactional_id": None, "acks": -1, "timeout": 1000, "topic_data": [topic]}
        return handle(decode_request(encode_request(Api.PRODUCE, 9, **fields)), rides.broker)

    async def story() -> Any:
        fields = fetch_fields(PAID, max_wait=60_000)
        fetching = handle(
            decode_request(encode_request(Api.FETCH, BY_NAME, **fields)), rides.broker
        )
        assert asyncio.iscoroutine(fetching)
        waiting = asyncio.ensure_future(fetching)
        for _ in range(5):
            await send("new").wait()
            for _ in range(5):
                await asyncio.sleep(0)
            assert not waiting.done()
        await send("new", "paid").wait()
        return decode_reply(Api.FETCH, BY_NAME, b"".join(await asyncio.wait_for(waiting, 60)))

    (topic,) = rides.run(story()).responses
    assert shown(topic.partitions[0]) == [(6, b"v")]
    # Each record was scanned once while the fetch waited.
    scanned = rides.metrics.value("respool_view_scanned_bytes_total")
    assert scanned == rides.broker.partitions.find("rides", 0).log.size_bytes


def test_a_fetch_waits_for_a_view_and_a_plain_topic_at_once(rides: RunningBroker) -> None:
    produce(rides, "new")
    reply = rides.ask(Api.FETCH, BY_NAME, **fetch_fields("rides", PAID, max_wait=600_000))
    plain, view = (topic.partitions[0] for topic in reply.responses)
    assert headers_in(plain.records) == [(0, 0, False)]
    assert headers_in(view.records) == [(0, 0, True)]


def test_the_wait_after_a_read_from_the_disk_is_no_time_of_this_broker(
    rides: RunningBroker,
) -> None:
    """A view with nothing to show looked like a broker that takes half a second for each fetch."""
    produce(rides, "new")
    rides.forget_tails()
    rides.disk.make_cold("rides-0/00000000000000000000.log")
    request = decode_request(encode_request(Api.FETCH, BY_NAME, **fetch_fields(PAID, max_wait=1)))

    async def answer() -> None:
        fetching = handle(request, rides.broker)
        assert asyncio.iscoroutine(fetching)
        assert not request.waits_for_others
        await fetching

    rides.run(answer())
    assert request.waits_for_others


def test_a_waiting_fetch_keeps_no_records(rides: RunningBroker) -> None:
    """They are read again after the wait. What was read from the disk, up to the minimum, is not accounted for."""
    produce(rides, "new" * 1000)
    rides.forget_tails()
    rides.disk.make_cold("rides-0/00000000000000000000.log")
    fields = fetch_fields("rides", PAID, max_wait=600_000, min_bytes=100_000)
    waiting = rides.start(rides.answer(Api.FETCH, BY_NAME, **fields))
    while rides.metrics.value("respool_view_scanned_bytes_total") == 0:
        rides.run(asyncio.sleep(0))
    rides.run(asyncio.sleep(0))
    assert not waiting.done()
    gc.collect()
    kept = [one for one in gc.get_objects() if isinstance(one, FetchedPartition)]
    assert not [one for one in kept if one.record_bytes]
    waiting.cancel()


# -- transactions ----------------------------------------------------------------------------------


@pytest.fixture
def bank(start_broker: StartBroker) -> RunningBroker:
    broker = start_with_transactions(start_broker)
    add_view(broker, PAID, "absent(tag)")
    return broker


def test_real_markers_and_the_aborted_list_go_together(bank: RunningBroker) -> None:
    """Half of either hides committed records from clients, or shows them aborted ones."""
    producer = Producer(bank)
    producer.write("rides", 0, b"undone")
    producer.end(commit=False)
    settle(bank)
    producer.write("rides", 0, b"done")
    producer.end(commit=True)
    settle(bank)
    # Its controls of both kinds are there, and its aborted transaction is listed.
    plain = fetch(bank, "rides", committed=True)
    assert [is_control for *_, is_control in headers_in(plain.records)] == [
        False, True, False, True,
    ]  # fmt: skip
    assert len(plain.aborted_transactions) == 1
    add_view(bank, PAID, "absent(tag)")

    view = fetch(bank, PAID, committed=True)

    assert not view.aborted_transactions
    assert shown(view) == [(2, b"done")]
    assert position_after(view) == 4
    all_of_it = fetch(bank, PAID, committed=False)
    assert shown(all_of_it) == [(0, b"undone"), (2, b"done")]
    assert position_after(all_of_it) == 4


def test_a_marker_never_passes_the_last_stable_offset(bank: RunningBroker) -> None:
    """It would skip an open transaction for read_committed readers, for good."""
    add_view(bank, PAID, "exists(tag)")
    bank.produce("rides", values=(b"plain",))
    producer = Producer(bank)
    producer.write("rides", 0, b"open")
    add_view(bank, PAID, "exists(tag)")
    part = fetch(bank, PAID, committed=True)
    assert (part.last_stable_offset, part.high_watermark) == (1, 2)
    assert headers_in(part.records) == [(0, 0, True)]
    assert headers_in(fetch(bank, PAID, committed=False).records) == [(1, 1, True)]
    assert not fetch(bank, PAID, committed=True, offset=1).records


# -- sizes -----------------------------------------------------------------------------------------


def test_the_marker_never_passes_a_batch_that_the_reply_has_no_room_for(
    rides: RunningBroker,
) -> None:
    for _ in range(3):
        produce(rides, "new", "new")
        produce(rides, "paid", "new")
    part = fetch(rides, PAID, bytes_max=1)
    # The first shown batch is larger than the limit. What is known not to be shown behind it is passed.
    assert headers_in(part.records) == [(2, 2, False), (5, 5, True)]
    part = fetch(rides, PAID, offset=6, bytes_max=1)
    assert headers_in(part.records) == [(6, 6, False), (9, 9, True)]


def test_a_fetch_that_begins_inside_a_batch_gets_its_earlier_records_only_with_later_ones(
    rides: RunningBroker,
) -> None:
    """A rebuilt batch that ends before the fetch offset would be an empty one for the reader."""
    produce(rides, "paid", "new", "paid", "new", "new")
    part = fetch(rides, PAID, offset=1)
    assert headers_in(part.records) == [(0, 2, False), (4, 4, True)]
    part = fetch(rides, PAID, offset=3)
    assert headers_in(part.records) == [(4, 4, True)]


def test_one_request_scans_a_limited_part_of_the_log(start_broker: StartBroker) -> None:
    """A partition's limit in a request is for what is sent. A view of nothing would read the whole log at once."""
    rides = start_broker(view_scan_bytes_max=2_000)
    rides.create_topic("rides")
    for _ in range(50):
        produce(rides, "new" * 50)
    add_view(rides, PAID, "tag = 'paid'")
    position, replies = 0, 0
    while position < 50:
        part = fetch(rides, PAID, offset=position, max_wait=600_000)
        assert position < position_after(part, offset=position) <= position + 10
        position = position_after(part, offset=position)
        replies += 1
        if position >= 40:
            break
    assert replies > 4


def test_the_records_of_a_small_compressed_batch_count_as_what_they_are(
    start_broker: StartBroker,
) -> None:
    rides = start_broker(view_scan_bytes_max=10_000)
    rides.create_topic("rides")
    bomb = build_batch([NewRecord(value=bytes(50_000), timestamp_ms=0)], codec=Codec.ZSTD)
    assert len(bomb) < 200
    for _ in range(3):
        append(rides, bomb)
    add_view(rides, PAID, "tag = 'paid'")
    assert headers_in(fetch(rides, PAID).records) == [(0, 0, True)]


def test_the_first_shown_batch_of_a_reply_may_be_larger_than_its_limits(
    rides: RunningBroker,
) -> None:
    """Else the view would stand still. A marker of another partition is no first batch."""
    produce(rides, "new", partition=0)
    produce(rides, "paid", partition=1)
    (topic,) = rides.ask(
        Api.FETCH, BY_NAME, **fetch_fields(PAID, partitions=(0, 1, 2), bytes_max=90, max_bytes=90)
    ).responses
    first, second, _ = topic.partitions
    assert headers_in(first.records) == [(0, 0, True)]
    assert headers_in(second.records) == [(0, 0, False)]


def test_markers_leave_room_for_the_records_of_other_partitions(rides: RunningBroker) -> None:
    """Views with nothing to show used up the reply's bytes: others waited although they had records."""
    produce(rides, "new", partition=0)
    produce(rides, "new", partition=1)
    produce(rides, "paid", partition=2)
    fields = fetch_fields(PAID, partitions=(0, 1, 2), bytes_max=1000, max_bytes=2 * MARKER_BYTES)
    (topic,) = rides.ask(Api.FETCH, BY_NAME, **fields).responses
    assert headers_in(topic.partitions[2].records) == [(0, 0, False)]


def test_without_memory_for_a_reply_nothing_is_scanned(rides: RunningBroker) -> None:
    produce(rides, "paid")
    budget = rides.broker.memory
    budget.charge(budget.limit)
    part = fetch(rides, PAID, max_wait=1)
    assert (part.error_code, part.high_watermark, part.records or b"") == (0, 1, b"")
    assert rides.metrics.value("respool_view_scanned_bytes_total") == 0
    budget.release(budget.limit)


def test_offsets_outside_of_the_parents_log_are_out_of_range(rides: RunningBroker) -> None:
    produce(rides, "paid", "new")
    assert fetch(rides, PAID, offset=3).error_code == OUT_OF_RANGE
    assert fetch(rides, PAID, offset=-1).error_code == OUT_OF_RANGE
    rides.broker.partitions.find("rides", 0).log.raise_log_start(Offset(1))
    part = fetch(rides, PAID, offset=0)
    assert part.error_code == OUT_OF_RANGE


# -- formats ---------------------------------------------------------------------------------------


def test_a_reader_too_old_for_zstd_gets_what_is_rebuilt_without(rides: RunningBroker) -> None:
    """The codec of what is sent counts: a rebuilt batch may be compressed or not."""
    produce(rides, "paid", *["new"] * 50, codec=Codec.ZSTD)
    assert shown(fetch(rides, PAID, version=9)) == [(0, b"paid")]
    produce(rides, *["paid" * 100] * 50, codec=Codec.ZSTD)
    add_view(rides, PAID, f"tag = '{'paid' * 100}'")
    assert fetch(rides, PAID, version=9, offset=51).error_code == BAD_CODEC
    assert len(shown(fetch(rides, PAID, version=10, offset=51), offset=51)) == 50


def test_a_reader_too_old_for_zstd_first_gets_what_lies_before(rides: RunningBroker) -> None:
    produce(rides, "paid")
    produce(rides, *["paid"] * 5, codec=Codec.ZSTD)
    assert shown(fetch(rides, PAID, version=9)) == [(0, b"paid")]
    assert fetch(rides, PAID, version=9, offset=1).error_code == BAD_CODEC


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, 5])
def test_a_batch_whose_records_cannot_be_read_is_left_out_and_counted(
    rides: RunningBroker, codec: int
) -> None:
    produce(rides, "paid")
    good = build_batch([NewRecord(value=b"v", timestamp_ms=0)] * 3)
    header = read_header(good)
    damaged: RecordBatch = seal(
        header._replace(attributes=codec), b"\xff" + good[HEADER_BYTES + 1 :]
    )
    partition = rides.broker.partitions.find("rides", 0)
    rides.run(_append(partition, damaged))
    produce(rides, "paid")
    add_view(rides, PAID, "tag != 'x'")
    part = fetch(rides, PAID)
    assert shown(part) == [(0, b"paid"), (4, b"paid")]
    assert rides.metrics.value("respool_view_unreadable_batches_total") == 1


async def _append(partition: Any, batch: RecordBatch) -> None:
    log = partition.log
    log.append(batch, leader_epoch=log.latest_epoch, now_ms=0)


def test_under_log_append_time_records_keep_the_time_of_their_batch(
    start_broker: StartBroker,
) -> None:
    """Its maximum is the time of every record: it must not shrink to that of the shown ones."""
    rides = start_broker()
    rides.create_topic("rides", message_timestamp_type="LogAppendTime")
    add_view(rides, PAID, "tag = 'paid'")
    produce(rides, "paid", "new")
    stored = read_header(fetch(rides, "rides").records)
    header = read_header(fetch(rides, PAID).records)
    assert header.is_log_append_time
    assert header.max_timestamp == stored.max_timestamp


# -- sessions --------------------------------------------------------------------------------------


def test_view_and_parent_in_one_session_are_two_targets(rides: RunningBroker) -> None:
    """What a session has told of one must not silence the other."""
    produce(rides, "new")
    fields = fetch_fields("rides", PAID, offset=1, session=(0, 0))
    first = rides.ask(Api.FETCH, BY_NAME, **fields)
    assert [topic.topic for topic in first.responses] == ["rides", PAID]
    quiet = fetch_fields("rides", PAID, offset=1, session=(first.session_id, 1))
    assert not rides.ask(Api.FETCH, BY_NAME, **quiet).responses
    produce(rides, "paid", partition=0)
    asked = fetch_fields(session=(first.session_id, 2))
    told = {
        topic.topic: topic.partitions[0]
        for topic in rides.ask(Api.FETCH, BY_NAME, **asked).responses
    }
    assert shown(told["rides"], offset=1) == shown(told[PAID], offset=1) == [(1, b"paid")]


# -- what a reader must not see --------------------------------------------------------------------


def test_a_view_that_is_deleted_during_its_read_never_shows_its_parents_records(
    rides: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cold partition is read in another thread, while the image changes: its view was looked up twice."""
    produce(rides, "new", "paid")
    catalog = rides.broker.catalog
    find = ConsumerReader.find

    def find_and_delete_view(reader: ConsumerReader, target: FetchTarget) -> Partition:
        partition = find(reader, target)
        catalog.image = replace(catalog.image, views={}, views_by_id={})
        return partition

    monkeypatch.setattr(ConsumerReader, "find", find_and_delete_view)
    view_id = rides.broker.image.views[PAID].id
    part = fetch(rides, PAID)
    assert (part.error_code, part.records or b"") == (UNKNOWN_TOPIC, b"")
    add_view(rides, PAID, "tag = 'paid'")
    part = fetch(rides, PAID, version=BY_ID, topic_id=view_id)
    assert (part.error_code, part.records or b"") == (UNKNOWN_TOPIC, b"")


def test_a_view_that_gets_another_parent_during_its_read_shows_nothing_of_the_old_one(
    rides: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(rides, "new", "paid")
    rides.create_topic("others")
    add_view(rides, PAID, "tag = 'paid'")
    find = ConsumerReader.find

    def find_and_create_again(reader: ConsumerReader, target: FetchTarget) -> Partition:
        partition = find(reader, target)
        add_view(rides, PAID, "tag = 'new'", of="others")
        return partition

    monkeypatch.setattr(ConsumerReader, "find", find_and_create_again)
    part = fetch(rides, PAID)
    assert (part.error_code, part.records or b"") == (UNKNOWN_TOPIC, b"")


# -- damage ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("where", ["tag = 'paid'", "tag = 'none'", "tag = 'x'"])
def test_a_view_never_hides_damage_of_the_disk(
    rides: RunningBroker, where: str, codec: Codec
) -> None:
    """A rebuilt batch has a checksum of its own, and records that are not shown have none: readers notice nothing."""
    add_view(rides, PAID, where)
    produce(rides, "none", "paid")
    first = fetch(rides, PAID).records
    good = build_batch([tagged("none"), tagged("paid")], codec=codec)
    header = read_header(good)
    header = header._replace(crc=header.crc ^ 1)
    damaged = RecordBatch(header, pack_header(header) + good[HEADER_BYTES:])
    rides.run(_append(rides.broker.partitions.find("rides", 0), damaged))
    produce(rides, "paid")
    add_view(rides, PAID, where)
    # What precedes the damage is served.
    assert fetch(rides, PAID).records == first
    assert fetch(rides, PAID, offset=2).error_code == CORRUPT


def test_a_header_that_the_disk_has_damaged_takes_the_partition_offline(
    rides: RunningBroker,
) -> None:
    """Its length tells where the next batch begins: if negative, before this one."""
    produce(rides, "paid")
    size = len(fetch(rides, "rides").records)
    produce(rides, "paid")
    rides.forget_tails()
    rides.disk.corrupt("rides-0/00000000000000000000.log", size + BASE_OFFSET_BYTES, mask=0x80)
    assert fetch(rides, PAID).error_code == STORAGE_FAILED
    assert not rides.broker.partitions.find("rides", 0).is_online


def tagged(tag: str) -> NewRecord:
    return NewRecord(value=b"v", timestamp_ms=0, headers=(("tag", tag.encode()),))


def test_a_producers_implausible_times_do_not_stop_a_view(rides: RunningBroker) -> None:
    records = [
        NewRecord(value=b"v", timestamp_ms=0, headers=(("tag", b"new"),)),
        NewRecord(value=b"v", timestamp_ms=2**63 - 1, headers=(("tag", b"paid"),)),
    ]
    now_ms = rides.clock.now_ms()
    batch = build_batch(records, max_timestamp=now_ms)
    stored = seal(read_header(batch)._replace(base_timestamp=now_ms), batch[HEADER_BYTES:])
    append(rides, bytes(stored.data))
    assert headers_in(fetch(rides, PAID).records) == [(0, 1, False)]


def test_a_batch_that_compaction_changed_is_judged_again(start_broker: StartBroker) -> None:
    """It has the offset of the batch that was remembered, and other records."""
    rides = start_broker()
    rides.create_topic("rides", cleanup_policy="compact", segment_bytes="1024")
    add_view(rides, PAID, "key != 'c'")
    now_ms = rides.clock.now_ms()
    keys = [b"a", b"b", b"c"]
    records = [NewRecord(key=key, value=b"old", timestamp_ms=now_ms) for key in keys]
    append(rides, build_batch(records))
    for _ in range(12):
        newer = NewRecord(key=b"a", value=b"new" * 50, timestamp_ms=now_ms)
        append(rides, build_batch([newer]))
    add_view(rides, PAID, "key != 'c'")
    assert [offset for offset, _ in shown(fetch(rides, PAID))][:2] == [0, 1]
    assert rides.run(rides.broker.housekeeping._compactor.compact_dirtiest())
    assert shown(fetch(rides, PAID))[0][0] == 1
