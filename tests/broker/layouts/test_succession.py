"""Records for sealed partitions go to their heirs, each once and in order, across any change of the layout."""

import pytest

from broker.layouts.shrinking import complete, everything, grow, send, sent, shrink
from broker.running_broker import RunningBroker, StartBroker
from broker.transaction_client import (
    INVALID_PRODUCER_EPOCH,
    NEW,
    OLD,
    OUT_OF_ORDER_SEQUENCE,
    Producer,
    fetch,
    read,
    settle,
    start_with_transactions,
)

WITHOUT_BARRIER = {"respool_shrink_barrier_ms": "0"}


@pytest.fixture
def rides(running_broker: RunningBroker) -> RunningBroker:
    running_broker.create_topic("rides", partitions=6, **WITHOUT_BARRIER)
    return running_broker


def test_a_sealed_partition_keeps_its_records_and_its_heir_takes_the_new_ones(
    rides: RunningBroker,
) -> None:
    for number in range(6):
        rides.produce("rides", number, values=(b"old %d" % number,))
    shrink(rides, 3)

    offsets = [rides.produce("rides", number, values=(b"new %d" % number,)) for number in range(6)]

    assert offsets == [1, 1, 1, -1, -1, -1]
    assert everything(rides) == [
        [b"old 0", b"new 0", b"new 3"],
        [b"old 1", b"new 1", b"new 4"],
        [b"old 2", b"new 2", b"new 5"],
        [b"old 3"],
        [b"old 4"],
        [b"old 5"],
    ]
    assert rides.metrics.value("respool_redirected_batches_total") == 3


def test_all_partitions_stay_in_metadata(rides: RunningBroker) -> None:
    shrink(rides, 3)
    assert len(rides.broker.image.topics["rides"].partitions) == 6
    assert rides.broker.image.topics["rides"].active_count == 3


@pytest.mark.parametrize("crash", [False, True])
def test_the_layout_outlives_a_restart(rides: RunningBroker, crash: bool) -> None:
    sent(rides, 5, 0, b"one")
    shrink(rides, 3)
    sent(rides, 5, 1, b"two")
    rides.restart(crash=crash)
    complete(rides)
    assert sent(rides, 5, 2, b"three") == -1
    assert (read(rides, "rides", 5), read(rides, "rides", 2)) == ([b"one"], [b"two", b"three"])


def test_a_producer_goes_on_with_its_sequences(rides: RunningBroker) -> None:
    sent(rides, 5, 0, b"a", b"b")
    sent(rides, 2, 0, b"other")
    shrink(rides, 3)
    sent(rides, 5, 2, b"c")
    sent(rides, 2, 1, b"other")
    sent(rides, 5, 3, b"d")
    assert read(rides, "rides", 2) == [b"other", b"c", b"other", b"d"]


def test_a_gap_is_noticed_across_the_change(rides: RunningBroker) -> None:
    sent(rides, 5, 0)
    shrink(rides, 3)
    assert send(rides, 5, 2).error_code == OUT_OF_ORDER_SEQUENCE
    assert sent(rides, 5, 1) == -1
    assert send(rides, 5, 3).error_code == OUT_OF_ORDER_SEQUENCE


def test_a_retry_of_a_batch_from_before_the_change_is_recognised(rides: RunningBroker) -> None:
    for sequence in range(5):
        sent(rides, 5, sequence, b"%d" % sequence)
    shrink(rides, 3)
    # The offset is real: the batch is in the partition that the client named.
    assert [sent(rides, 5, sequence) for sequence in range(5)] == [0, 1, 2, 3, 4]
    assert sent(rides, 5, 5, b"5") == -1
    assert sent(rides, 5, 4) == 4
    assert read(rides, "rides", 2) == [b"5"]
    assert len(read(rides, "rides", 5)) == 5


def test_a_retry_of_a_redirected_batch_is_recognised_also_after_the_topic_grew(
    rides: RunningBroker,
) -> None:
    sent(rides, 5, 0, b"a")
    shrink(rides, 3)
    sent(rides, 5, 1, b"b")
    assert sent(rides, 5, 1) == -1
    grow(rides, 6)
    assert sent(rides, 5, 1) == -1
    assert sent(rides, 5, 2, b"c") == 1
    # One that is in the partition's own log, and older than what its heir has.
    assert sent(rides, 5, 0) == 0
    assert (read(rides, "rides", 5), read(rides, "rides", 2)) == ([b"a", b"c"], [b"b"])
    shrink(rides, 3)
    assert sent(rides, 5, 2) == 1
    assert sent(rides, 5, 3, b"d") == -1
    assert read(rides, "rides", 2) == [b"b", b"d"]


def test_a_key_follows_repeated_shrinks_and_growths(start_broker: StartBroker) -> None:
    broker = start_broker()
    broker.create_topic("rides", partitions=12, **WITHOUT_BARRIER)
    sequence = 0
    where: list[int] = []
    for count in (12, 6, 3, 6, 12, 3, 1, 12):
        if count != 12 or sequence:
            active = broker.broker.image.topics["rides"].active_count
            (shrink if count < active else grow)(broker, count)
        heads = [len(read(broker, "rides", number)) for number in range(12)]
        sent(broker, 11, sequence, b"%d" % sequence)
        sequence += 1
        assert sent(broker, 11, sequence - 1) in (-1, heads[11])
        after = [len(read(broker, "rides", number)) for number in range(12)]
        (number,) = [one for one in range(12) if after[one] != heads[one]]
        where.append(number)
    assert where == [11, 5, 2, 5, 11, 2, 0, 11]
    broker.restart(crash=True)
    complete(broker)
    assert send(broker, 11, sequence + 1).error_code == OUT_OF_ORDER_SEQUENCE
    assert sent(broker, 11, sequence) >= 0


def test_an_older_epoch_is_fenced_in_the_heir(rides: RunningBroker) -> None:
    sent(rides, 5, 0, epoch=3)
    shrink(rides, 3)
    assert send(rides, 5, 0, epoch=2).error_code == INVALID_PRODUCER_EPOCH
    assert sent(rides, 5, 0, epoch=4) == -1
    assert send(rides, 5, 1, epoch=3).error_code == INVALID_PRODUCER_EPOCH


def test_a_producer_of_a_partition_that_was_never_written_begins_anywhere(
    rides: RunningBroker,
) -> None:
    shrink(rides, 3)
    assert sent(rides, 5, 7) == -1
    assert send(rides, 5, 9).error_code == OUT_OF_ORDER_SEQUENCE


# -- transactions


@pytest.fixture(params=[OLD, NEW], ids=["version 1", "version 2"])
def bank(start_broker: StartBroker, request: pytest.FixtureRequest) -> Producer:
    broker = start_with_transactions(start_broker)
    broker.create_topic("trips", partitions=4, **WITHOUT_BARRIER)
    return Producer(broker, speaks=request.param)


def is_stable(broker: RunningBroker, number: int) -> bool:
    fetched = fetch(broker, "trips", number, committed=True)
    return bool(fetched.last_stable_offset == fetched.high_watermark)


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_transaction_across_the_change_ends_in_both_logs(
    bank: Producer, is_committed: bool
) -> None:
    broker = bank.broker
    bank.write("trips", 3, b"before")
    shrink(broker, 2, topic="trips")
    bank.write("trips", 3, b"after")
    bank.write("trips", 1, b"own")
    assert not is_stable(broker, 3)
    assert not is_stable(broker, 1)

    (bank.commit if is_committed else bank.abort)()

    assert is_stable(broker, 3)
    assert is_stable(broker, 1)
    assert read(broker, "trips", 3) == ([b"before"] if is_committed else [])
    assert read(broker, "trips", 1) == ([b"after", b"own"] if is_committed else [])
    assert read(broker, "trips", 1, committed=False) == [b"after", b"own"]


def test_a_transaction_may_span_a_shrink_and_a_growth(bank: Producer) -> None:
    broker = bank.broker
    bank.write("trips", 3, b"one")
    shrink(broker, 2, topic="trips")
    bank.write("trips", 3, b"two")
    grow(broker, 4, topic="trips")
    bank.write("trips", 3, b"three")
    bank.commit()
    assert (read(broker, "trips", 3), read(broker, "trips", 1)) == ([b"one", b"three"], [b"two"])
    assert is_stable(broker, 3)
    assert is_stable(broker, 1)


def test_only_the_aborted_partition_of_two_with_one_heir_is_left_out(bank: Producer) -> None:
    broker = bank.broker
    shrink(broker, 2, topic="trips")
    other = Producer(broker, "till", speaks=bank.speaks)
    bank.write("trips", 3, b"aborted")
    other.write("trips", 1, b"kept")
    bank.abort()
    other.commit()
    assert read(broker, "trips", 1) == [b"kept"]


def test_a_transaction_after_another_goes_on(bank: Producer) -> None:
    broker = bank.broker
    bank.write("trips", 3, b"1")
    bank.commit()
    shrink(broker, 2, topic="trips")
    for number in range(2, 6):
        bank.write("trips", 3, b"%d" % number)
        bank.commit()
    assert read(broker, "trips", 1) == [b"2", b"3", b"4", b"5"]


def test_a_late_batch_of_an_ended_transaction_begins_none_in_the_heir(bank: Producer) -> None:
    broker = bank.broker
    bank.write("trips", 3, b"in time")
    late = bank.zombie()
    bank.commit()
    shrink(broker, 2, topic="trips")
    answer = late.send("trips", 3, b"late")
    assert answer.error_code != 0
    assert read(broker, "trips", 1, committed=False) == []
    settle(broker)
    assert is_stable(broker, 1)
