"""Delayed records in transactions: they wait from the commit on, and never if it is aborted."""

import pytest

from broker.deliveries.delay_broker import DelayBroker, delayed, record
from broker.running_broker import RunningBroker
from respool.records.batch import RecordBatch, read_header
from respool.records.build import NewRecord, build_batch
from respool.records.markers import EndTransactionMarker

PRODUCER = 42


@pytest.fixture
def delays(running_broker: RunningBroker) -> DelayBroker:
    return DelayBroker(running_broker)


class Transaction:
    """A transactional producer, beyond its coordinator: batches and a marker, straight into the partition."""

    def __init__(self, delays: DelayBroker, producer_id: int = PRODUCER) -> None:
        self._delays = delays
        self._producer_id = producer_id
        self._sequence = 0

    def write(self, *records: NewRecord) -> None:
        async def append() -> None:
            partition, now_ms = self._delays.partition, self._delays.running.clock.now_ms()
            data = build_batch(
                records,
                producer_id=self._producer_id,
                producer_epoch=0,
                base_sequence=self._sequence,
                is_transactional=True,
                log_append_time=True,
                max_timestamp=now_ms,
            )
            batch = RecordBatch(read_header(data), data)
            guard = partition.log.begin_verification(batch.header)
            partition.append(batch, now_ms=now_ms, guard=guard)
            self._sequence += len(records)

        self._delays.running.run(append())

    def end(self, *, commit: bool) -> None:
        async def append() -> None:
            marker = EndTransactionMarker(
                producer_id=self._producer_id,
                producer_epoch=0,
                is_commit=commit,
                coordinator_epoch=0,
            )
            self._delays.partition.append_marker(marker, now_ms=self._delays.running.clock.now_ms())

        self._delays.running.run(append())


def test_record_of_a_transaction_waits_once_it_is_committed(delays: DelayBroker) -> None:
    transaction = Transaction(delays)
    transaction.write(record(b"now"), delayed(b"later", b"10s"))
    delays.deliver(after_ms=20_000)
    assert delays.pending_count == 0
    transaction.end(commit=True)
    delays.deliver()
    assert delays.values(read_committed=True) == [b"now", b"later"]


def test_record_of_an_aborted_transaction_is_never_delivered(delays: DelayBroker) -> None:
    transaction = Transaction(delays)
    transaction.write(delayed(b"never", b"10s"))
    delays.send(delayed(b"beside", b"10s"))
    transaction.end(commit=False)
    transaction.write(delayed(b"next", b"10s"))
    transaction.end(commit=True)
    delays.deliver(after_ms=10_000)
    assert delays.values(read_committed=True) == [b"beside", b"next"]


def test_cancellation_in_an_aborted_transaction_cancels_nothing(delays: DelayBroker) -> None:
    delays.send(delayed(b"a", b"10s", ("respool-schedule-id", b"a")))
    transaction = Transaction(delays)
    transaction.write(record(b"", ("respool-cancel", b"a")))
    transaction.end(commit=False)
    delays.deliver(after_ms=10_000)
    assert delays.values() == [b"a"]


def test_open_transaction_holds_no_delivery_back(delays: DelayBroker) -> None:
    delays.send(delayed(b"a", b"10s"), delayed(b"b", b"20s"))
    delays.deliver()
    transaction = Transaction(delays)
    transaction.write(delayed(b"c", b"10s"))
    delays.deliver(after_ms=10_000)
    delays.deliver(after_ms=10_000)
    assert delays.values() == [b"a", b"b"]
    # For those who wait for transactions, the copies lie behind an open one.
    assert delays.values(read_committed=True) == []
    transaction.end(commit=True)
    delays.deliver()
    assert delays.values(read_committed=True) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("commit", [True, False])
def test_what_is_sent_above_an_open_transaction_counts_when_that_ends(
    delays: DelayBroker, commit: bool
) -> None:
    """Another producer's transaction: until it ends, nothing above it is stable, and what is not may still go."""
    waits = ("respool-schedule-id", b"in time"), ("respool-schedule-id", b"too late")
    delays.send(delayed(b"in time", b"20s", waits[0]), delayed(b"too late", b"10s", waits[1]))
    delays.deliver()
    transaction = Transaction(delays)
    transaction.write(record(b"open"))
    delays.send(
        record(b"", ("respool-cancel", b"in time")),
        record(b"", ("respool-cancel", b"too late")),
        delayed(b"new", b"5s"),
    )
    delays.deliver(after_ms=10_000)
    assert delays.values() == [b"open", b"too late"]
    transaction.end(commit=commit)
    delays.deliver(after_ms=10_000)
    assert delays.values() == [b"open", b"too late", b"new"]


@pytest.mark.parametrize("how", [{"kill": True}, {"crash": True}, {}])
def test_copies_above_an_open_transaction_are_not_delivered_again_after_a_restart(
    delays: DelayBroker, how: dict[str, bool]
) -> None:
    """1. a waits.   2. A transaction opens.   3. a's copy is appended behind it.   4. The broker restarts."""
    delays.send(delayed(b"a", b"10s"))
    delays.send(record(b"tick", ("respool-schedule", b"@every 10s"), ("respool-times", b"2")))
    delays.deliver()
    transaction = Transaction(delays)
    transaction.write(record(b"open"))
    delays.deliver(after_ms=10_000)
    assert delays.values() == [b"open", b"a", b"tick"]
    delays.running.restart(**how)
    delays.deliver(after_ms=10_000)
    assert delays.values() == [b"open", b"a", b"tick"]
    transaction.end(commit=True)
    delays.deliver()
    assert delays.values() == [b"open", b"a", b"tick", b"tick"]
    delays.deliver(after_ms=10**9)
    assert len(delays.values()) == 4
