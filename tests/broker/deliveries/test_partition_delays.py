"""The jobs of a partition's worker: bounded in memory, in the order of time, whatever the log looks like."""

import pytest

from broker.deliveries.delay_broker import DelayBroker, delayed
from broker.running_broker import RunningBroker
from respool.broker.deliveries import partition_delays
from respool.broker.deliveries.log_facts import LogFacts
from respool.broker.deliveries.partition_delays import rules_of
from respool.model.ids import Offset
from respool.records.batch import Codec
from respool.timing.delay_records import WaitingRecord


@pytest.fixture
def delays(running_broker: RunningBroker) -> DelayBroker:
    return DelayBroker(running_broker)


def test_large_records_that_are_due_together_are_not_all_in_memory(
    delays: DelayBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_delays, "DELIVERED_BYTES_MAX", 3_000)
    # The last in the log is due first.
    for number in range(10):
        delays.send(delayed(b"%d" % number * 1_000, b"%ds" % (20 - number)))
    delays.deliver(after_ms=20_000)
    assert delays.values() == [b"%d" % number * 1_000 for number in range(9, -1, -1)]


def test_more_than_one_job_delivers_are_delivered_in_order(
    delays: DelayBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_delays, "DELIVERED_TOGETHER", 7)
    for number in range(0, 50, 5):
        delays.send(*(delayed(b"%d" % one, b"1s") for one in range(number, number + 5)))
    delays.deliver(after_ms=1_000)
    assert delays.values() == [b"%d" % number for number in range(50)]


def test_more_than_one_job_feeds_are_fed(
    delays: DelayBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("respool.broker.deliveries.log_facts.CHUNK_BYTES", 300)
    monkeypatch.setattr(partition_delays, "FED_BYTES_MAX", 1_000)
    for number in range(50):
        delays.send(delayed(b"%d" % number, b"1s"))
    delays.deliver(after_ms=1_000)
    assert delays.values() == [b"%d" % number for number in range(50)]


@pytest.mark.parametrize("codec", Codec)
def test_records_of_many_batches_are_found_by_their_offsets(
    delays: DelayBroker, codec: Codec
) -> None:
    for batch in range(4):
        records = [
            delayed(b"%d" % (batch * 100 + one) * (1 + one % 40), b"1h") for one in range(100)
        ]
        delays.send(*records, codec=codec)
    log = delays.partition.log
    facts = LogFacts(log, rules_of(log.config))
    offsets = [Offset(one) for one in (399, 0, 7, 100, 99, 250, 8, 1_000)]
    found = facts.facts_at(offsets, bytes_max=10**6)
    assert found.keys() == set(offsets)
    assert found[Offset(1_000)] is None
    for offset in offsets[:-1]:
        fact = found[offset]
        assert isinstance(fact, WaitingRecord)
        assert fact.record.value == b"%d" % offset * (1 + offset % 100 % 40)
    # Not more than asked for, but something.
    assert facts.facts_at(offsets, bytes_max=1).keys() == {
        Offset(0),
        Offset(7),
        Offset(8),
        Offset(99),
    }
