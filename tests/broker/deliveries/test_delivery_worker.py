"""Delayed records in a broker: hidden, delivered once at their time, whatever happens in between."""

import pytest

from broker.deliveries.delay_broker import DelayBroker, delayed, record
from broker.running_broker import RunningBroker, StartBroker
from respool.broker.deliveries.delivery_worker import CHECKPOINT_MS
from respool.records.batch import Codec
from respool.records.record import Record

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
# As a requirement lists them.
SIXTEEN = "1s,5s,10s,30s,1m,2m,3m,4m,6m,8m,9m,10m,20m,30m,1h,2h"


@pytest.fixture
def delays(running_broker: RunningBroker) -> DelayBroker:
    return DelayBroker(running_broker)


def headers_of(one: Record) -> dict[str, bytes | None]:
    return dict(one.headers)


def test_delayed_record_is_hidden_until_its_time(delays: DelayBroker) -> None:
    sent_ms = delays.running.clock.now_ms()
    assert delays.send(record(b"now"), delayed(b"later", b"30s", ("tag", b"x"))) == 0
    delays.deliver()
    assert delays.values() == [b"now"]
    assert delays.pending_count == 1
    delays.deliver(after_ms=29_999)
    assert delays.values() == [b"now"]
    delays.deliver(after_ms=1)
    assert delays.values() == [b"now", b"later"]
    copy = delays.visible()[1]
    assert (copy.offset, copy.key, copy.timestamp) == (2, b"key", sent_ms + 30_000)
    assert copy.headers == (
        ("tag", b"x"),
        ("respool-delivered-from", b"1"),
        ("respool-sent-at", b"%d" % sent_ms),
        ("respool-due-at", b"%d" % (sent_ms + 30_000)),
    )
    assert delays.pending_count == 0
    delays.deliver(after_ms=DAY_MS)
    assert delays.values() == [b"now", b"later"]


def test_readers_position_passes_hidden_records_at_the_end(delays: DelayBroker) -> None:
    for number in range(10):
        delays.send(delayed(b"%d" % number, b"1h"))
    # `visible` asserts that the position reaches the end.
    assert delays.values() == []
    assert delays.values(offset=5) == []


def test_sixteen_levels_and_the_payment_check_after_thirty_minutes(
    running_broker: RunningBroker,
) -> None:
    delays = DelayBroker(running_broker, settings={"respool_delay_levels": SIXTEEN})
    for level in range(1, 17):
        delays.send(record(b"%d" % level, ("respool-delay-level", b"%d" % level)))
    order = record(
        b"check the payment of order 7",
        ("respool-delay-level", b"14"),
        ("respool-schedule-id", b"order-7"),
    )
    paid = record(
        b"check the payment of order 8",
        ("respool-delay-level", b"14"),
        ("respool-schedule-id", b"order-8"),
    )
    delays.send(order, paid)
    delays.deliver(after_ms=20 * 60_000)
    delays.send(record(b"", ("respool-cancel", b"order-8")))
    assert delays.values() == [b"%d" % level for level in range(1, 14)]
    delays.deliver(after_ms=10 * 60_000 - 1)
    assert len(delays.values()) == 13
    delays.deliver(after_ms=1)
    assert delays.values()[13:] == [b"14", b"check the payment of order 7"]
    delays.deliver(after_ms=2 * HOUR_MS)
    assert delays.values()[15:] == [b"15", b"16"]


@pytest.mark.parametrize("codec", Codec)
def test_order_is_by_time_and_then_by_offset(running_broker: RunningBroker, codec: Codec) -> None:
    delays = DelayBroker(running_broker)
    delays.send(
        delayed(b"b", b"2s"), record(b"x"), delayed(b"a", b"1s"), delayed(b"c", b"2s"), codec=codec
    )
    delays.deliver(after_ms=7 * DAY_MS)
    assert delays.values() == [b"x", b"a", b"b", b"c"]


def test_time_that_has_passed_is_delivered_at_once(delays: DelayBroker) -> None:
    delays.send(record(b"late", ("respool-deliver-at", b"1600000000000")))
    delays.deliver()
    assert delays.values() == [b"late"]
    assert delays.visible()[0].offset == 1


def test_clock_that_is_set_back_delivers_nothing_twice(delays: DelayBroker) -> None:
    delays.send(delayed(b"a", b"10s"), delayed(b"b", b"20s"))
    delays.deliver(after_ms=10_000)
    delays.running.clock.skew(-HOUR_MS)
    delays.deliver(after_ms=10_000)
    assert delays.values() == [b"a"]
    delays.running.clock.skew(HOUR_MS)
    delays.deliver()
    assert delays.values() == [b"a", b"b"]


def test_idempotent_retry_adds_nothing(delays: DelayBroker) -> None:
    producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    assert delays.send(delayed(b"a", b"10s"), **producer) == 0
    assert delays.send(delayed(b"a", b"10s"), **producer) == 0
    assert delays.send(delayed(b"b", b"10s"), **{**producer, "base_sequence": 1}) == 1
    delays.deliver(after_ms=10_000)
    assert delays.values() == [b"a", b"b"]


def test_later_record_of_an_id_replaces_the_earlier_one(delays: DelayBroker) -> None:
    delays.send(delayed(b"old", b"10s", ("respool-schedule-id", b"x")))
    delays.send(delayed(b"new", b"20s", ("respool-schedule-id", b"x")))
    delays.deliver(after_ms=10_000)
    assert delays.values() == []
    delays.deliver(after_ms=10_000)
    assert delays.values() == [b"new"]


def test_cancellation_counts_for_its_own_id_only(
    delays: DelayBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All ids have the same hash: only their bytes tell them apart.
    monkeypatch.setattr("respool.timing.pending.hash_id", lambda _: 7)
    delays.send(delayed(b"a", b"10s", ("respool-schedule-id", b"a")))
    delays.send(delayed(b"b", b"10s", ("respool-schedule-id", b"b")))
    delays.send(record(b"", ("respool-cancel", b"a")))
    delays.send(record(b"", ("respool-cancel", b"c")))
    delays.deliver(after_ms=10_000)
    assert delays.values() == [b"b"]


def test_cancellation_after_delivery_does_nothing(delays: DelayBroker) -> None:
    delays.send(delayed(b"a", b"10s", ("respool-schedule-id", b"a")))
    delays.deliver(after_ms=10_000)
    delays.send(record(b"", ("respool-cancel", b"a")))
    # The id is free again.
    delays.send(delayed(b"again", b"10s", ("respool-schedule-id", b"a")))
    delays.deliver(after_ms=10_000)
    assert delays.values() == [b"a", b"again"]


def test_schedule_is_delivered_again_and_again_until_its_end(delays: DelayBroker) -> None:
    every = (("respool-schedule", b"@every 10s"), ("respool-times", b"3"))
    delays.send(record(b"tick", *every))
    for count in (1, 2, 3, 3, 3):
        delays.deliver(after_ms=10_000)
        assert len(delays.values()) == count
    assert [headers_of(one).get("respool-next") is None for one in delays.visible()] == [
        False,
        False,
        True,
    ]
    assert delays.pending_count == 0


def test_schedule_delivers_its_latest_missed_time_once(delays: DelayBroker) -> None:
    sent_ms = delays.running.clock.now_ms()
    delays.send(record(b"tick", ("respool-schedule", b"@every 10s")))
    delays.deliver(after_ms=95_000)
    (copy,) = delays.visible()
    assert headers_of(copy)["respool-due-at"] == b"%d" % (sent_ms + 90_000)
    assert headers_of(copy)["respool-next"] == b"%d" % (sent_ms + 100_000)


def test_schedule_is_cancelled_between_its_times(delays: DelayBroker) -> None:
    delays.send(record(b"tick", ("respool-schedule", b"@every 10s"), ("respool-schedule-id", b"s")))
    delays.deliver(after_ms=10_000)
    delays.send(record(b"", ("respool-cancel", b"s")))
    delays.deliver(after_ms=DAY_MS)
    assert delays.values() == [b"tick"]


@pytest.mark.parametrize("how", [{"kill": True}, {"crash": True}, {}])
def test_restart_delivers_what_became_due_meanwhile_once(
    delays: DelayBroker, how: dict[str, bool]
) -> None:
    delays.send(*(delayed(b"%d" % number, b"%ds" % (number + 1)) for number in range(20)))
    delays.deliver(after_ms=10_000)
    assert len(delays.values()) == 10
    for number in range(10, 20):
        delays.running.restart(**how)
        delays.running.clock.advance(1_000)
        delays.deliver()
        assert len(delays.values()) == number + 1
    delays.running.restart(**how)
    delays.deliver(after_ms=DAY_MS)
    assert delays.values() == [b"%d" % number for number in range(20)]


def test_restart_after_a_checkpoint_reads_only_what_came_since(delays: DelayBroker) -> None:
    delays.send(*(delayed(b"%d" % number, b"1h") for number in range(100)))
    delays.deliver()
    delays.running.restart()
    delays.deliver()
    delays.send(delayed(b"100", b"1h"))
    delays.deliver()
    assert delays.worker.delays is not None
    assert 0 < delays.worker.delays.read_bytes < 200
    delays.deliver(after_ms=HOUR_MS)
    assert len(delays.values()) == 101


def test_checkpoint_is_written_though_nothing_happens_any_more(delays: DelayBroker) -> None:
    delays.send(*(delayed(b"%d" % number, b"1h") for number in range(100)))
    delays.deliver()
    delays.running.clock.advance(CHECKPOINT_MS)
    worker = delays.worker
    worker._event.clear()
    # Returns at once, though nothing was committed and nothing is due.
    delays.running.run(worker._wait())
    delays.deliver()
    delays.running.restart(kill=True)
    delays.deliver()
    assert delays.worker.delays is not None
    assert delays.worker.delays.read_bytes == 0
    assert delays.pending_count == 100


def test_damaged_index_is_built_again_from_the_log(delays: DelayBroker) -> None:
    delays.send(delayed(b"a", b"10s"), delayed(b"b", b"1h"))
    delays.deliver(after_ms=10_000)
    delays.running.run(delays.running.broker.stop())
    delays.running.disk.replace_file("reminders-0/pending/checkpoint", b"{}")
    delays.running.restart(kill=True)
    delays.deliver(after_ms=HOUR_MS)
    assert delays.values() == [b"a", b"b"]


def test_copies_are_split_to_fit_the_topics_largest_batch(running_broker: RunningBroker) -> None:
    delays = DelayBroker(running_broker, settings={"max_message_bytes": "2000"})
    for number in range(10):
        delays.send(delayed(b"%d" % number * 900, b"10s"))
    # Its copy has more headers, and fits no batch that a producer may send.
    delays.send(delayed(b"x" * 1_890, b"10s"))
    delays.deliver(after_ms=10_000)
    assert len(delays.values()) == 11


def test_compression_of_the_topic_applies_to_copies(running_broker: RunningBroker) -> None:
    delays = DelayBroker(running_broker, settings={"compression_type": "zstd"})
    delays.send(delayed(b"x" * 10_000, b"10s"))
    size = delays.partition.log.size_bytes
    delays.deliver(after_ms=10_000)
    assert delays.values() == [b"x" * 10_000]
    assert delays.partition.log.size_bytes < size + 1_000


def test_with_create_time_the_delay_counts_from_the_producers_clock(
    running_broker: RunningBroker,
) -> None:
    delays = DelayBroker(running_broker, settings={"message_timestamp_type": "CreateTime"})
    sent_ms = delays.running.clock.now_ms() - 8_000
    new = record(b"a", ("respool-delay", b"10s"), timestamp_ms=sent_ms)
    delays.send(new)
    delays.deliver(after_ms=1_999)
    assert delays.values() == []
    delays.deliver(after_ms=1)
    assert delays.visible()[0].timestamp == sent_ms + 10_000


def test_deliveries_per_second_are_limited(start_broker: StartBroker) -> None:
    delays = DelayBroker(start_broker(delay_deliveries_per_s_max=100))
    delays.send(*(delayed(b"%d" % number, b"1s") for number in range(300)))
    delays.deliver(after_ms=1_000)
    assert len(delays.values()) == 100
    delays.deliver(after_ms=500)
    assert len(delays.values()) == 150
    delays.deliver(after_ms=1_000)
    delays.deliver(after_ms=1_000)
    assert delays.values() == [b"%d" % number for number in range(300)]


def test_topic_without_delays_shows_records_with_delay_headers(
    running_broker: RunningBroker,
) -> None:
    DelayBroker(running_broker)
    running_broker.create_topic("plain")
    running_broker.produce("plain")
    partition = running_broker.broker.partitions.find("plain", 0)
    assert running_broker.broker.deliveries.worker(partition) is None


def test_metrics_say_what_waits(delays: DelayBroker) -> None:
    delays.send(delayed(b"a", b"10s"), delayed(b"b", b"20s"))
    delays.deliver()
    metrics = delays.running.metrics
    assert metrics.collected("respool_delay_pending") == {(): 2}
    assert metrics.collected("respool_delay_next_due_seconds") == {(): 10}
    delays.deliver(after_ms=10_004)
    assert metrics.collected("respool_delay_pending") == {(): 1}
    assert metrics.observed("respool_delay_lateness_seconds") == [0.004]


def test_deleted_topic_takes_its_delayed_records_along(delays: DelayBroker) -> None:
    delays.send(delayed(b"a", b"10s"))
    delays.deliver()
    broker = delays.running.broker
    delays.running.run(broker.topics.delete("reminders"))
    again = DelayBroker(delays.running)
    again.deliver(after_ms=DAY_MS)
    assert again.values() == []
