"""Delayed records and retention: what waits is carried to the log's end; what a human deletes is cancelled."""

import pytest

from broker.deliveries.delay_broker import DelayBroker, delayed, record
from broker.running_broker import RunningBroker
from respool.broker.partitions.partition import Partition
from respool.model.errors import DiskFull, NotLeader
from respool.model.ids import Offset
from respool.wire.api_table import Api

DAY_MS = 86_400_000
SMALL = {"segment_bytes": "2000", "retention_ms": str(DAY_MS)}


@pytest.fixture
def delays(running_broker: RunningBroker) -> DelayBroker:
    return DelayBroker(running_broker, settings=SMALL)


def apply_retention(delays: DelayBroker) -> None:
    housekeeping = delays.running.broker.housekeeping

    async def apply() -> None:
        await housekeeping.carry_delayed(delays.partition)
        housekeeping.clean(delays.partition)

    delays.running.run(apply())
    delays.deliver()


def fill(delays: DelayBroker, count: int = 20) -> None:
    for _ in range(count):
        delays.send(record(b"x" * 400))


def delete_before(delays: DelayBroker, offset: int) -> None:
    reply = delays.running.ask(
        Api.DELETE_RECORDS,
        2,
        topics=[{"name": "reminders", "partitions": [{"partition_index": 0, "offset": offset}]}],
        timeout=1000,
    )
    assert reply.topics[0].partitions[0].error_code == 0


def test_waiting_record_outlives_retention(delays: DelayBroker) -> None:
    delays.send(delayed(b"a", b"9d"), delayed(b"soon", b"1h"))
    fill(delays)
    for _ in range(5):
        delays.deliver(after_ms=DAY_MS + 1)
        fill(delays)
        apply_retention(delays)
        assert delays.partition.log_start > 2
        assert delays.pending_count == 1
    delays.deliver(after_ms=4 * DAY_MS)
    values = [one for one in delays.values(offset=delays.partition.log_start) if one == b"a"]
    assert values == [b"a"]
    copy = delays.visible(offset=delays.partition.log_start)[-1]
    assert dict(copy.headers)["respool-delivered-from"] == b"0"
    delays.deliver(after_ms=9 * DAY_MS)
    apply_retention(delays)
    assert b"a" not in delays.values(offset=delays.partition.log_start)


@pytest.mark.parametrize("how", [{"kill": True}, {"crash": True}, {}])
def test_restart_after_carrying_delivers_once(delays: DelayBroker, how: dict[str, bool]) -> None:
    delays.send(*(delayed(b"%d" % number, b"3d") for number in range(5)))
    fill(delays)
    delays.deliver(after_ms=DAY_MS + 1)
    fill(delays)
    apply_retention(delays)
    delays.running.restart(**how)
    delays.deliver(after_ms=2 * DAY_MS)
    found = [
        one for one in delays.values(offset=delays.partition.log_start) if len(one or b"") == 1
    ]
    assert found == [b"%d" % number for number in range(5)]


def test_schedule_outlives_retention(delays: DelayBroker) -> None:
    delays.send(record(b"tick", ("respool-schedule", b"@every 1d"), ("respool-times", b"4")))
    ticks = 0
    offset = 0
    for _ in range(6):
        delays.deliver(after_ms=DAY_MS)
        fill(delays)
        apply_retention(delays)
        start = max(offset, delays.partition.log_start)
        ticks += delays.values(offset=start).count(b"tick")
        offset = delays.partition.high_watermark
    assert ticks == 4


def test_cancelled_record_is_not_carried(delays: DelayBroker) -> None:
    delays.send(delayed(b"a", b"9d", ("respool-schedule-id", b"a")))
    delays.send(record(b"", ("respool-cancel", b"a")))
    fill(delays)
    delays.deliver(after_ms=DAY_MS + 1)
    fill(delays)
    apply_retention(delays)
    carried = [one for one in delays.stored() if "respool-carried-from" in dict(one.headers)]
    assert carried == []
    delays.deliver(after_ms=9 * DAY_MS)
    assert b"a" not in delays.values(offset=delays.partition.log_start)


def test_cancellation_of_a_carried_record_counts_after_it_was_deleted(delays: DelayBroker) -> None:
    delays.send(delayed(b"a", b"9d", ("respool-schedule-id", b"a")))
    for _ in range(2):
        fill(delays)
        delays.deliver(after_ms=DAY_MS + 1)
        fill(delays, 5)
        apply_retention(delays)
    delays.send(record(b"", ("respool-cancel", b"a")))
    for _ in range(2):
        fill(delays)
        delays.deliver(after_ms=DAY_MS + 1)
        fill(delays, 5)
        apply_retention(delays)
    delays.running.restart(kill=True)
    delays.deliver(after_ms=9 * DAY_MS)
    assert b"a" not in delays.values(offset=delays.partition.log_start)


def test_retention_waits_until_what_was_carried_is_appended(
    delays: DelayBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays.send(delayed(b"a", b"9d"))
    fill(delays)
    delays.deliver(after_ms=DAY_MS + 1)
    fill(delays)

    def refuse(*_: object, **__: object) -> None:
        raise NotLeader("as the test wants it")

    with monkeypatch.context() as patch:
        patch.setattr(Partition, "append", refuse)
        apply_retention(delays)
        assert delays.partition.log_start == 0
    apply_retention(delays)
    assert delays.partition.log_start > 0
    delays.deliver(after_ms=9 * DAY_MS)
    assert delays.values(offset=delays.partition.log_start).count(b"a") == 1


def test_carried_bytes_do_not_count_as_the_partitions_size(running_broker: RunningBroker) -> None:
    """Otherwise what waits would be carried again and again, each time deleting what is visible."""
    settings = {"segment_bytes": "2000", "retention_bytes": "4000"}
    delays = DelayBroker(running_broker, settings=settings)
    delays.send(*(delayed(b"%d" % number * 1000, b"9d") for number in range(8)))
    fill(delays, 10)
    apply_retention(delays)
    size, end = delays.partition.log.size_bytes, delays.partition.log.log_end
    for _ in range(5):
        apply_retention(delays)
    assert delays.partition.log.log_end <= end + 8
    assert delays.partition.log.size_bytes <= size + 10_000
    delays.deliver(after_ms=9 * DAY_MS)
    found = delays.values(offset=delays.partition.log_start)
    assert sum(len(one or b"") == 1000 for one in found) == 8


def test_deleted_records_are_cancelled_and_counted(
    delays: DelayBroker, caplog: pytest.LogCaptureFixture
) -> None:
    delays.send(delayed(b"a", b"10s"), delayed(b"b", b"1h"), delayed(b"c", b"1h"))
    delays.deliver(after_ms=10_000)
    with caplog.at_level("INFO"):
        delete_before(delays, 2)
    assert "records before 2 are deleted, and with them 1 delayed record that waited" in caplog.text
    delays.deliver(after_ms=DAY_MS)
    assert delays.values(offset=2) == [b"a", b"c"]


def test_full_disk_delays_deliveries_and_loses_none(delays: DelayBroker) -> None:
    delays.send(*(delayed(b"%d" % number, b"10s") for number in range(5)))
    delays.deliver()
    disk = delays.running.disk
    disk.faults.capacity_bytes = disk.used_bytes
    delays.deliver(after_ms=10_000)
    assert delays.values() == []
    disk.faults.capacity_bytes = None
    delays.deliver()
    assert delays.values() == [b"%d" % number for number in range(5)]


def test_broker_without_a_place_for_the_index_serves_on(
    delays: DelayBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise DiskFull("as the test wants it")

    delays.send(delayed(b"a", b"10s"))
    delays.deliver()
    with monkeypatch.context() as patch:
        patch.setattr("respool.timing.wheel_files.WheelFiles.write_checkpoint", refuse)
        delays.running.run(delays.worker.checkpoint())
    delays.deliver(after_ms=10_000)
    assert delays.values() == [b"a"]
    assert delays.running.broker.deliveries.deletable_to(delays.partition) == Offset(0)


def test_partition_that_is_opened_again_has_one_worker(delays: DelayBroker) -> None:
    delays.send(delayed(b"a", b"10s"))
    delays.deliver()
    broker, first = delays.running.broker, delays.partition

    async def open_again() -> None:
        first.abandon_log(DiskFull("as the test wants it"))
        await broker.hosted_replicas.open_again()

    delays.running.run(open_again())
    assert delays.partition is not first
    assert broker.deliveries.worker(first) is None
    delays.deliver(after_ms=10_000)
    assert delays.values() == [b"a"]
