"""Fetch, from request bytes to reply bytes: sizes, waiting, sessions, cold reads."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from broker.running_broker import RunningBroker, StartBroker
from broker.wire_client import decode_reply, encode_request, versions
from respool.broker.dispatch import handle
from respool.broker.outcome import CloseConnection
from respool.model.errors import HandlesExhausted
from respool.records.batch import Codec, RecordBatch
from respool.records.build import NewRecord, build_batch
from respool.records.record import read_records
from respool.records.validate import walk_batches
from respool.wire.api_table import Api
from respool.wire.codec import decode_request

OUT_OF_RANGE, UNKNOWN_TOPIC, STORAGE_ERROR, NO_SESSION, BAD_EPOCH = 1, 3, 56, 70, 71
FENCED, UNKNOWN_EPOCH, BAD_CODEC, UNKNOWN_TOPIC_ID = 74, 75, 76, 100
BY_NAME, BY_ID = 12, 16


def target(
    partition: int = 0, offset: int = 0, *, bytes_max: int = 1 << 20, **more: Any
) -> dict[str, Any]:
    return {
        "partition": partition,
        "fetch_offset": offset,
        "partition_max_bytes": bytes_max,
        **more,
    }


def wish(
    *targets: dict[str, Any],
    topic: str = "rides",
    topic_id: UUID | None = None,
    max_wait: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    session: tuple[int, int] = (0, -1),
    forgotten: tuple[int, ...] = (),
) -> dict[str, Any]:
    name = {"topic": topic, "topic_id": topic_id}
    return {
        "replica_id": -1,
        "max_wait": max_wait,
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "isolation_level": 0,
        "session_id": session[0],
        "session_epoch": session[1],
        "topics": [{**name, "partitions": list(targets)}] if targets else [],
        "forgotten_topics_data": [{**name, "partitions": forgotten}] if forgotten else [],
        "rack_id": "",
    }


def values(records: bytes) -> list[bytes | None]:
    data = memoryview(records)
    return [
        record.value
        for position, header in walk_batches(records)
        for record in read_records(
            RecordBatch(header, data[position : position + header.size]), limit=1 << 20
        )
    ]


def only(reply: Any) -> Any:
    (topic,) = reply.responses
    (partition,) = topic.partitions
    return partition


@pytest.fixture
def rides(running_broker: RunningBroker) -> RunningBroker:
    running_broker.create_topic("rides", partitions=3)
    return running_broker


@pytest.mark.parametrize("version", versions(Api.FETCH))
def test_every_version_reads_what_was_produced(rides: RunningBroker, version: int) -> None:
    rides.produce("rides", values=(b"a", b"b"))
    rides.produce("rides", values=(b"c",))
    topic_id = rides.broker.image.topics["rides"].id
    got = only(rides.ask(Api.FETCH, version, **wish(target(), topic_id=topic_id)))
    assert got.error_code == 0
    assert got.high_watermark == 3
    assert values(got.records) == [b"a", b"b", b"c"]


def test_a_fetch_inside_a_batch_returns_the_whole_batch(rides: RunningBroker) -> None:
    rides.produce("rides", values=(b"a", b"b", b"c"))
    got = only(rides.ask(Api.FETCH, BY_NAME, **wish(target(offset=2))))
    assert values(got.records) == [b"a", b"b", b"c"]


def test_a_batch_larger_than_every_limit_is_returned_whole_once(rides: RunningBroker) -> None:
    for partition in (0, 1):
        rides.produce("rides", partition, values=(b"x" * 5_000,))
    reply = rides.ask(
        Api.FETCH,
        BY_NAME,
        **wish(target(0, bytes_max=10), target(1, bytes_max=10), max_bytes=10),
    )
    first, second = reply.responses[0].partitions
    assert values(first.records) == [b"x" * 5_000]
    assert not second.records


def test_the_brokers_own_limit_holds_too(start_broker: StartBroker) -> None:
    broker = start_broker(fetch_bytes_max=2_000)
    broker.create_topic("rides")
    for _ in range(5):
        broker.produce("rides", values=(b"x" * 1_000,))
    assert len(only(broker.ask(Api.FETCH, BY_NAME, **wish(target()))).records) <= 2_000


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (target(offset=-1), OUT_OF_RANGE),
        (target(offset=2), OUT_OF_RANGE),
        (target(7), UNKNOWN_TOPIC),
        (target(current_leader_epoch=3), UNKNOWN_EPOCH),
    ],
)
def test_what_cannot_be_read_is_told_at_once(
    rides: RunningBroker, asked: dict[str, Any], code: int
) -> None:
    rides.produce("rides")
    got = only(rides.ask(Api.FETCH, BY_NAME, **wish(asked, max_wait=60_000)))
    assert (got.error_code, got.high_watermark) == (code, -1)
    assert not got.records


def test_after_a_crash_a_reader_that_knows_the_old_leader_is_fenced(rides: RunningBroker) -> None:
    rides.produce("rides")
    rides.restart(crash=True)
    got = only(rides.ask(Api.FETCH, BY_NAME, **wish(target(current_leader_epoch=0))))
    assert got.error_code == FENCED


def test_an_unknown_topic_id_is_told_as_such(rides: RunningBroker) -> None:
    got = only(rides.ask(Api.FETCH, BY_ID, **wish(target(), topic_id=UUID(int=5))))
    assert got.error_code == UNKNOWN_TOPIC_ID


def test_a_reader_too_old_for_zstd_is_told_so(rides: RunningBroker) -> None:
    rides.produce("rides", codec=Codec.ZSTD)
    assert only(rides.ask(Api.FETCH, 9, **wish(target()))).error_code == BAD_CODEC
    assert only(rides.ask(Api.FETCH, 10, **wish(target()))).error_code == 0


def test_nobody_may_fetch_as_a_replica(rides: RunningBroker) -> None:
    fields = {**wish(target()), "replica_id": 2}
    with pytest.raises(CloseConnection, match="replica 2"):
        rides.ask(Api.FETCH, BY_NAME, **fields)


def test_without_data_a_fetch_waits_its_time_and_answers_empty(rides: RunningBroker) -> None:
    got = only(rides.ask(Api.FETCH, BY_NAME, **wish(target(), max_wait=5)))
    assert (got.error_code, got.high_watermark, got.records or b"") == (0, 0, b"")


async def fetch_later(broker: RunningBroker, **fields: Any) -> "asyncio.Future[Any]":
    """Start a fetch that must wait, and return its reply to come."""
    outcome = handle(decode_request(encode_request(Api.FETCH, BY_NAME, **fields)), broker.broker)
    assert asyncio.iscoroutine(outcome)
    task = asyncio.ensure_future(outcome)
    await asyncio.sleep(0)
    assert not task.done()
    return task


def test_a_waiting_fetch_is_answered_by_what_comes_and_not_before(rides: RunningBroker) -> None:
    async def story() -> Any:
        waiting = await fetch_later(rides, **wish(target(), max_wait=60_000))
        rides.offload.hold()
        frame = encode_request(Api.PRODUCE, 9, **rides_batch(b"news"))
        outcome = handle(decode_request(frame), rides.broker)
        await asyncio.sleep(0)
        # Written but not synced: nobody may see it yet.
        assert not waiting.done()
        rides.offload.release()
        await outcome.wait()  # type: ignore[union-attr]
        return decode_reply(Api.FETCH, BY_NAME, b"".join(await waiting))

    assert values(only(rides.run(story())).records) == [b"news"]


def test_what_is_committed_before_a_fetch_has_begun_to_wait_is_not_missed(
    rides: RunningBroker,
) -> None:
    # Both requests came in one turn of the loop: the fetch had read, and did not wait yet.
    async def story() -> Any:
        frame = encode_request(Api.FETCH, BY_NAME, **wish(target(), max_wait=60_000))
        fetching = handle(decode_request(frame), rides.broker)
        assert asyncio.iscoroutine(fetching)
        produced = handle(
            decode_request(encode_request(Api.PRODUCE, 9, **rides_batch(b"news"))), rides.broker
        )
        await produced.wait()  # type: ignore[union-attr]
        return decode_reply(Api.FETCH, BY_NAME, b"".join(await asyncio.wait_for(fetching, 5)))

    assert values(only(rides.run(story())).records) == [b"news"]


def test_a_fetch_that_wants_many_bytes_waits_for_them(rides: RunningBroker) -> None:
    async def story() -> Any:
        waiting = await fetch_later(rides, **wish(target(), max_wait=60_000, min_bytes=3_000))
        for _ in range(3):
            assert not waiting.done()
            frame = encode_request(Api.PRODUCE, 9, **rides_batch(b"x" * 1_000))
            outcome = handle(decode_request(frame), rides.broker)
            await outcome.wait()  # type: ignore[union-attr]
            await asyncio.sleep(0)
        return decode_reply(Api.FETCH, BY_NAME, b"".join(await waiting))

    assert len(values(only(rides.run(story())).records)) == 3


def test_a_waiting_fetch_is_told_when_its_topic_goes(rides: RunningBroker) -> None:
    async def story() -> Any:
        waiting = await fetch_later(rides, **wish(target(), max_wait=60_000))
        await rides.broker.topics.delete("rides")
        return decode_reply(Api.FETCH, BY_NAME, b"".join(await waiting))

    assert only(rides.run(story())).error_code == UNKNOWN_TOPIC


def test_a_waiting_fetch_is_told_when_its_partition_fails(rides: RunningBroker) -> None:
    async def story() -> Any:
        waiting = await fetch_later(rides, **wish(target(), max_wait=60_000))
        rides.disk.faults.fail("sync", path="rides-0/*.log")
        frame = encode_request(Api.PRODUCE, 9, **rides_batch(b"lost"))
        await handle(decode_request(frame), rides.broker).wait()  # type: ignore[union-attr]
        return decode_reply(Api.FETCH, BY_NAME, b"".join(await waiting))

    assert only(rides.run(story())).error_code == STORAGE_ERROR


def test_a_reader_whose_log_parted_from_ours_hears_it_at_once(rides: RunningBroker) -> None:
    # Consumers ask so too: kafka-python does, of a topic that was deleted and made anew.
    rides.produce("rides", values=(b"a", b"b", b"c"))
    asked = wish(target(offset=5, last_fetched_epoch=0), max_wait=600_000)
    frame = encode_request(Api.FETCH, BY_NAME, **asked)
    reply = handle(decode_request(frame), rides.broker)
    assert isinstance(reply, list)
    got = only(decode_reply(Api.FETCH, BY_NAME, b"".join(reply)))
    assert (got.error_code, got.records or b"") == (0, b"")
    assert (got.diverging_epoch.epoch, got.diverging_epoch.end_offset) == (0, 3)


def test_a_cancelled_fetch_leaves_nothing_behind(rides: RunningBroker) -> None:
    async def story() -> None:
        waiting = await fetch_later(rides, **wish(target(), max_wait=60_000))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        marks = rides.broker.partitions.find("rides", 0).watermarks
        assert not any(marks._waiting)

    rides.run(story())


def test_what_was_just_produced_is_sent_without_the_disk(rides: RunningBroker) -> None:
    rides.produce("rides", values=(b"new",))
    rides.disk.faults.fail("read", path="rides-0/*.log", times=None)
    got = only(rides.ask(Api.FETCH, BY_NAME, **wish(target())))
    assert values(got.records) == [b"new"]


def test_without_a_tail_everything_is_read_from_the_log(start_broker: StartBroker) -> None:
    running = start_broker(tail_bytes_max=0)
    running.create_topic("rides")
    running.produce("rides", values=(b"new",))
    assert values(only(running.ask(Api.FETCH, BY_NAME, **wish(target()))).records) == [b"new"]
    running.disk.faults.fail("read", path="rides-0/*.log", times=None)
    got = only(running.ask(Api.FETCH, BY_NAME, **wish(target())))
    assert got.error_code == STORAGE_ERROR


def test_cold_bytes_are_read_elsewhere_and_are_the_same(rides: RunningBroker) -> None:
    rides.produce("rides", values=(b"old",))
    rides.forget_tails()
    rides.disk.make_cold("rides-0/00000000000000000000.log")
    got = only(rides.ask(Api.FETCH, BY_NAME, **wish(target())))
    assert values(got.records) == [b"old"]


def test_a_log_that_cannot_be_read_takes_its_partition_offline(rides: RunningBroker) -> None:
    rides.produce("rides")
    rides.forget_tails()
    rides.disk.faults.fail("read", path="rides-0/*.log", times=None)
    assert only(rides.ask(Api.FETCH, BY_NAME, **wish(target()))).error_code == STORAGE_ERROR
    assert not rides.broker.partitions.find("rides", 0).is_online


def test_what_cannot_be_read_while_the_log_is_cut_off_does_not_take_its_partition_offline(
    rides: RunningBroker,
) -> None:
    """A follower that begins its log anew deletes file after file, while consumers read there (KIP-392)."""
    rides.produce("rides")
    rides.forget_tails()
    partition = rides.broker.partitions.find("rides", 0)
    rides.disk.faults.fail("read", path="rides-0/*.log", times=None)
    partition.log._parts.truncations += 1
    assert only(rides.ask(Api.FETCH, BY_NAME, **wish(target()))).error_code == STORAGE_ERROR
    partition.log._parts.truncations += 1
    assert partition.is_online
    assert only(rides.ask(Api.FETCH, BY_NAME, **wish(target()))).error_code == STORAGE_ERROR
    assert not partition.is_online


def test_a_fetch_without_a_file_handle_fails_and_the_next_one_gets_the_records(
    rides: RunningBroker,
) -> None:
    rides.produce("rides", values=(b"v",))
    partition = rides.broker.partitions.find("rides", 0)
    partition.log._parts.segments.active.finish()
    partition.log._parts.segments.active.release()
    rides.forget_tails()
    rides.disk.faults.fail("open", error=HandlesExhausted, times=None)
    assert only(rides.ask(Api.FETCH, BY_NAME, **wish(target()))).error_code == STORAGE_ERROR
    assert partition.is_online
    rides.disk.faults.heal()
    assert values(only(rides.ask(Api.FETCH, BY_NAME, **wish(target()))).records) == [b"v"]


def test_without_memory_left_a_fetch_waits_for_some(rides: RunningBroker) -> None:
    rides.produce("rides", values=(b"v",))

    async def story() -> Any:
        budget = rides.broker.memory
        budget.charge(budget.limit)
        waiting = await fetch_later(rides, **wish(target(), max_wait=60_000))
        budget.release(budget.limit)
        return decode_reply(Api.FETCH, BY_NAME, b"".join(await waiting))

    assert values(only(rides.run(story())).records) == [b"v"]


@pytest.mark.parametrize("has_tail", [True, False])
def test_fetches_that_waited_for_memory_do_not_all_take_the_same(
    start_broker: StartBroker, has_tail: bool
) -> None:
    """
    1. Many fetches wait, and one client's replies give their memory back.   2. All fetches wake up in one turn of the
       loop, and each finds that room.   3. Only a turn later their connections charge what they were given.
    """
    running = start_broker(
        memory_bytes_max=1 << 20, frame_bytes_max=1 << 20, tail_bytes_max=(1 << 24) * has_tail
    )
    running.create_topic("rides")
    for _ in range(8):
        running.produce("rides", values=(b"x" * 100_000,))
    budget = running.broker.memory
    charged: list[int] = []

    def charge(done: "asyncio.Future[Any]") -> None:
        """What a connection does whose client takes nothing."""
        size = sum(map(len, done.result()))
        budget.charge(size)
        charged.append(size)

    async def story() -> None:
        budget.charge(budget.limit)
        tasks = []
        for _ in range(20):
            tasks.append(await fetch_later(running, **wish(target(), max_wait=60_000)))
            tasks[-1].add_done_callback(charge)
        budget.release(500_000)
        for _ in range(100):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    running.run(story())
    assert charged
    # A batch comes whole, and one reply may go over the limit by it; not one for each.
    assert budget.used <= budget.limit + 101_000
    budget.release(budget.used)


def test_without_memory_in_time_a_fetch_answers_for_every_partition_without_records(
    rides: RunningBroker,
) -> None:
    rides.produce("rides", values=(b"v",))
    budget = rides.broker.memory
    budget.charge(budget.limit)

    reply = rides.ask(Api.FETCH, BY_NAME, **wish(target(), target(1), max_wait=1))

    (topic,) = reply.responses
    told = [(one.error_code, one.high_watermark, one.records or b"") for one in topic.partitions]
    assert told == [(0, 1, b""), (0, 0, b"")]
    budget.release(budget.limit)


def test_a_fetch_that_wants_more_than_it_may_get_does_not_wait_for_that(
    rides: RunningBroker,
) -> None:
    rides.produce("rides", values=(b"x" * 2_000,))
    fields = wish(target(), max_wait=600_000, min_bytes=1 << 20, max_bytes=1_000)

    assert values(only(rides.ask(Api.FETCH, BY_NAME, **fields)).records) == [b"x" * 2_000]


def test_a_session_tells_only_what_is_new(rides: RunningBroker) -> None:
    rides.produce("rides", 0, values=(b"a",))
    first = rides.ask(Api.FETCH, BY_NAME, **wish(target(0), target(1), target(2), session=(0, 0)))
    assert first.session_id > 0
    assert [one.partition_index for one in first.responses[0].partitions] == [0, 1, 2]

    quiet = rides.ask(
        Api.FETCH, BY_NAME, **wish(target(0, offset=1), session=(first.session_id, 1))
    )
    assert list(quiet.responses) == []

    rides.produce("rides", 2, values=(b"b",))
    news = rides.ask(Api.FETCH, BY_NAME, **wish(session=(first.session_id, 2)))
    assert only(news).partition_index == 2
    assert values(only(news).records) == [b"b"]

    rides.ask(Api.FETCH, BY_NAME, **wish(session=(first.session_id, 3), forgotten=(2,)))
    gone = rides.ask(Api.FETCH, BY_NAME, **wish(session=(first.session_id, 4)))
    assert list(gone.responses) == []


def test_a_session_out_of_step_is_told_so(rides: RunningBroker) -> None:
    first = rides.ask(Api.FETCH, BY_NAME, **wish(target(), session=(0, 0)))
    assert (
        rides.ask(Api.FETCH, BY_NAME, **wish(session=(first.session_id, 9))).error_code == BAD_EPOCH
    )
    assert rides.ask(Api.FETCH, BY_NAME, **wish(session=(12345, 1))).error_code == NO_SESSION


def rides_batch(value: bytes) -> dict[str, Any]:
    records = build_batch([NewRecord(value=value, timestamp_ms=0)])
    return {
        "transactional_id": None,
        "acks": -1,
        "timeout": 1000,
        "topic_data": [{"name": "rides", "partition_data": [{"index": 0, "records": records}]}],
    }
