"""Transactions' ends on their way into partitions: what is tried again, what counts as written, who is told."""

import logging
from collections.abc import Callable

import pytest

from broker.group_client import begin_to_load as begin_to_load_groups
from broker.group_client import runtimes as group_runtimes
from broker.running_broker import RunningBroker, StartBroker
from broker.transaction_client import (
    NEW,
    OFFSETS_TOPIC,
    STATE_TOPIC,
    fetch_offsets,
    has_open_transaction,
    markers,
    read,
    release,
    retry_at_once,
    settle,
    start_with_transactions,
    state_of,
)
from broker.transaction_client import Producer as TransactionalProducer
from respool.broker.coordinators.marker_writer import RETRY_S
from respool.broker.coordinators.runtime import _State
from respool.model.errors import (
    DiskFailed,
    InvalidProducerEpoch,
    RequestError,
    StorageFailed,
    UnknownTopicOrPartition,
)
from respool.model.ids import TopicPartition
from respool.records.markers import EndTransactionMarker

RIDES, FARES = TopicPartition("rides", 0), TopicPartition("fares", 1)


def marker(
    *, epoch: int = 3, coordinator_epoch: int = 0, is_commit: bool = True, producer_id: int = 4_000
) -> EndTransactionMarker:
    return EndTransactionMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        is_commit=is_commit,
    )


class Writing:
    """An end on its way, and how often its coordinator was told that it is everywhere."""

    def __init__(
        self,
        broker: RunningBroker,
        *names: TopicPartition,
        end: EndTransactionMarker | None = None,
        needs_newer_epoch: bool = False,
    ) -> None:
        self.told = 0
        self.is_wanted = True

        def on_written() -> None:
            self.told += 1

        async def write() -> None:
            broker.broker.markers.write(
                end or marker(),
                names,
                on_written=on_written,
                is_wanted=lambda: self.is_wanted,
                needs_newer_epoch=needs_newer_epoch,
            )

        broker.run(write())
        settle(broker)


def count(broker: RunningBroker, name: TopicPartition) -> int:
    return len(markers(broker, *name))


def run_soon(broker: RunningBroker, work: Callable[[], object]) -> None:
    async def run() -> None:
        work()

    broker.run(run())
    settle(broker)


@pytest.fixture
def broker(start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch) -> RunningBroker:
    retry_at_once(monkeypatch)
    return start_with_transactions(start_broker)


def test_the_coordinator_is_told_once_when_all_markers_are_committed(
    broker: RunningBroker,
) -> None:
    broker.offload.hold()
    writing = Writing(broker, RIDES, FARES)
    assert writing.told == 0
    release(broker)

    assert writing.told == 1
    assert (count(broker, RIDES), count(broker, FARES)) == (1, 1)


@pytest.mark.parametrize("flush", ["always", "interval", "os"])
def test_the_coordinator_is_told_when_markers_are_on_the_disk_whatever_the_topic_promises(
    broker: RunningBroker, flush: str
) -> None:
    broker.create_topic("weak", partitions=1, **{"respool.flush": flush})
    broker.offload.hold()
    writing = Writing(broker, TopicPartition("weak", 0))
    log = broker.broker.partitions.find("weak", 0).log
    assert (writing.told, log.log_end, log.synced_end) == (0, 1, 0)
    release(broker)

    assert (writing.told, log.synced_end) == (1, 1)


def test_a_transaction_that_wrote_nowhere_is_done_at_once(broker: RunningBroker) -> None:
    assert Writing(broker).told == 1


def test_a_partition_that_is_gone_has_nothing_to_end(broker: RunningBroker) -> None:
    writing = Writing(broker, TopicPartition("nowhere", 0), RIDES, TopicPartition("rides", 9))

    assert (writing.told, count(broker, RIDES)) == (1, 1)


def test_what_cannot_be_written_now_is_written_later_and_the_rest_not_again(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fares = broker.broker.partitions.find(*FARES)
    append = fares.append_marker

    def refuse(*_: object, **__: object) -> None:
        raise StorageFailed("as the test wants it")

    monkeypatch.setattr(fares, "append_marker", refuse)
    writing = Writing(broker, FARES, RIDES)
    assert (writing.told, count(broker, RIDES), count(broker, FARES)) == (0, 1, 0)
    monkeypatch.setattr(fares, "append_marker", append)
    settle(broker)

    assert (writing.told, count(broker, RIDES), count(broker, FARES)) == (1, 1, 1)


def test_what_is_to_be_tried_again_waits_for_a_while(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker = start_with_transactions(start_broker)
    broker.take_offline(*FARES)
    caplog.clear()

    with caplog.at_level(logging.WARNING, logger="respool.broker.coordinators.marker_writer"):
        writing = Writing(broker, FARES)

    # One try, though the loop has turned many times.
    assert len(caplog.records) == 1
    assert "fares" in caplog.text
    assert (writing.told, len(broker.broker.markers._retries)) == (0, 1)
    run_soon(broker, broker.broker.markers.stop)
    assert not broker.broker.markers._retries


def test_a_partition_that_stays_away_is_told_of_once_however_often_it_is_tried(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.take_offline(*FARES)

    with caplog.at_level(logging.DEBUG, logger="respool.broker.coordinators.marker_writer"):
        writing = Writing(broker, FARES)
        settle(broker)

    levels = [one.levelno for one in caplog.records if one.name.endswith("marker_writer")]
    assert levels[0] == logging.WARNING
    assert len(levels) > 2
    assert set(levels[1:]) == {logging.DEBUG}
    writing.is_wanted = False


def test_what_fails_again_and_again_is_tried_ever_more_seldom() -> None:
    delays = [RETRY_S.delay(tries) for tries in range(1, 100)]
    assert delays[:7] == [0.5, 1, 2, 4, 8, 10, 10]
    assert delays[-1] == 10


def test_a_marker_that_was_written_and_not_committed_is_written_again(
    broker: RunningBroker,
) -> None:
    broker.offload.hold()
    writing = Writing(broker, RIDES, FARES)
    rides = broker.broker.partitions.find(*RIDES)
    run_soon(broker, lambda: rides.go_offline(DiskFailed("as the test wants it")))
    release(broker)
    assert writing.told == 0

    # Somebody mended it.
    rides.failure = None
    settle(broker)

    assert writing.told == 1
    assert (count(broker, RIDES), count(broker, FARES)) == (2, 1)


def test_a_marker_of_version_2_that_was_written_and_not_committed_counts_when_it_is(
    broker: RunningBroker,
) -> None:
    """It is known when it comes again; that alone does not make it durable."""
    broker.offload.hold()
    writing = Writing(broker, RIDES, needs_newer_epoch=True)
    rides = broker.broker.partitions.find(*RIDES)
    run_soon(broker, lambda: rides.go_offline(DiskFailed("as the test wants it")))
    # Somebody mended it, and nothing was synced yet.
    rides.failure = None
    settle(broker)
    assert (writing.told, count(broker, RIDES)) == (0, 1)
    release(broker)

    assert (writing.told, count(broker, RIDES)) == (1, 1)


def test_a_late_marker_of_version_2_does_not_end_the_next_transaction(
    broker: RunningBroker,
) -> None:
    producer = TransactionalProducer(broker, speaks=NEW)
    producer.write(*RIDES)
    producer.commit()
    (end,) = markers(broker, *RIDES)
    producer.write(*RIDES)

    with pytest.raises(InvalidProducerEpoch):
        broker.broker.markers.append(end, RIDES, needs_newer_epoch=True)
    assert has_open_transaction(broker, *RIDES)
    # As it would in version 1, where epochs say nothing of it.
    run_soon(broker, lambda: broker.broker.markers.append(end, RIDES))
    assert not has_open_transaction(broker, *RIDES)


def test_a_newer_producer_has_ended_it_already(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    Writing(broker, RIDES, end=marker(epoch=5))

    writing = Writing(broker, RIDES, FARES, end=marker(epoch=3))

    assert (writing.told, count(broker, RIDES), count(broker, FARES)) == (1, 1, 1)
    assert "is not needed" in caplog.text


def test_a_newer_coordinator_has_ended_it_already(broker: RunningBroker) -> None:
    Writing(broker, RIDES, end=marker(coordinator_epoch=5))

    writing = Writing(broker, RIDES, end=marker(coordinator_epoch=4))

    assert (writing.told, count(broker, RIDES)) == (1, 1)


def test_a_transaction_is_not_called_ended_while_it_is_open_where_its_end_is_refused(
    broker: RunningBroker,
) -> None:
    producer = TransactionalProducer(broker)
    # From outside, and in the name of a coordinator that does not exist.
    false = marker(epoch=0, coordinator_epoch=5, producer_id=producer.id)
    Writing(broker, RIDES, end=false)
    producer.write(*RIDES)
    producer.write(*FARES)
    producer.commit()

    assert state_of(broker) == "PrepareCommit"
    assert (count(broker, RIDES), count(broker, FARES)) == (1, 1)

    # The same way it can be helped.
    Writing(broker, RIDES, end=false)
    settle(broker)
    assert state_of(broker) == "CompleteCommit"
    assert (read(broker, *RIDES), read(broker, *FARES)) == ([b"v"], [b"v"])


def test_a_marker_may_be_written_twice(broker: RunningBroker) -> None:
    """As after a crash of the coordinator between the marker and its own record of it."""
    first, second = Writing(broker, RIDES), Writing(broker, RIDES)

    assert (first.told, second.told) == (1, 1)


def test_what_nobody_wants_any_more_is_given_up(broker: RunningBroker) -> None:
    broker.take_offline(*FARES)
    writing = Writing(broker, FARES)
    writing.is_wanted = False
    settle(broker)

    # The next coordinator of the id writes it.
    broker.broker.partitions.find(*FARES).failure = None
    settle(broker)
    assert (writing.told, count(broker, FARES)) == (0, 0)
    assert not broker.broker.markers._retries


def test_a_coordinator_that_went_while_markers_were_synced_is_not_told(
    broker: RunningBroker,
) -> None:
    broker.offload.hold()
    writing = Writing(broker, RIDES)
    writing.is_wanted = False
    release(broker)

    assert (writing.told, count(broker, RIDES)) == (0, 1)


def test_a_groups_coordinator_takes_over_the_end_of_its_offsets(broker: RunningBroker) -> None:
    producer = TransactionalProducer(broker)
    producer.write_offsets("drivers", ("rides", 0, 7))
    number = broker.broker.groups.runtimes.partition_of("drivers")
    end = marker(producer_id=producer.id, epoch=producer.epoch)

    writing = Writing(broker, TopicPartition(OFFSETS_TOPIC, number), end=end)

    assert writing.told == 1
    assert fetch_offsets(broker, "drivers", "rides", stable=True) == (0, 7)


def test_a_groups_coordinator_that_loads_is_waited_for(broker: RunningBroker) -> None:
    begin_to_load_groups(broker)
    name = TopicPartition(OFFSETS_TOPIC, 1)
    writing = Writing(broker, name)
    assert (writing.told, count(broker, name)) == (0, 0)

    for runtime in group_runtimes(broker):
        runtime._state = _State.ACTIVE
    settle(broker)

    assert (writing.told, count(broker, name)) == (1, 1)


def test_the_topic_of_transactions_has_nothing_to_end(broker: RunningBroker) -> None:
    name = TopicPartition(STATE_TOPIC, 0)

    assert Writing(broker, name, RIDES).told == 1
    assert count(broker, name) == 0


def test_writing_once_waits_for_the_commit_and_says_what_went_wrong(
    broker: RunningBroker,
) -> None:
    def write(name: TopicPartition, epoch: int = 3) -> RequestError | None:
        async def wait() -> RequestError | None:
            return await broker.broker.markers.begin_to_write(marker(epoch=epoch), name)

        return broker.run(wait())

    assert write(RIDES, epoch=5) is None
    assert count(broker, RIDES) == 1
    with pytest.raises(UnknownTopicOrPartition):
        write(TopicPartition("nowhere", 0))
    assert isinstance(write(RIDES, epoch=4), InvalidProducerEpoch)

    broker.disk.faults.fail("sync", path="fares-1/*.log")
    assert isinstance(write(FARES), StorageFailed)
    assert not broker.broker.markers._retries
