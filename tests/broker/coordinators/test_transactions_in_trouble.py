"""Transactions when things break: partitions that go offline or are deleted, clients that go away, full disks."""

import pytest

from broker.running_broker import LATEST, RunningBroker, StartBroker
from broker.transaction_client import (
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_NOT_AVAILABLE,
    NEW,
    NOT_COORDINATOR,
    NOT_ENOUGH_REPLICAS,
    OFFSETS_TOPIC,
    OLD,
    PRODUCER_FENCED,
    STATE_TOPIC,
    STORAGE_ERROR,
    TIMEOUT_MS,
    Producer,
    fetch_offsets,
    has_open_transaction,
    let_pass,
    markers,
    read,
    release,
    restart,
    retry_at_once,
    runtimes,
    settle,
    start_with_transactions,
    state_of,
    wait_until_loaded,
)

both_protocols = pytest.mark.parametrize("speaks", [OLD, NEW], ids=["version 1", "version 2"])
either_way = pytest.mark.parametrize("is_commit", [False, True], ids=["abort", "commit"])
NAMES = (("rides", 0), ("fares", 1))


@pytest.fixture
def broker(start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch) -> RunningBroker:
    retry_at_once(monkeypatch)
    return start_with_transactions(start_broker)


# --- partitions that are offline or gone


@both_protocols
def test_a_partition_that_is_offline_holds_up_only_the_transactions_that_wrote_to_it(
    broker: RunningBroker, speaks: dict[str, int]
) -> None:
    unlucky, lucky = (Producer(broker, name, speaks=speaks) for name in ("unlucky", "lucky"))
    for producer in (unlucky, lucky):
        producer.write("rides", 0, producer.transactional_id.encode())
    unlucky.write("fares", 1, b"v")
    broker.take_offline("fares", 1)

    assert unlucky.end(commit=True) == 0
    lucky.commit()

    assert (state_of(broker, "unlucky"), state_of(broker, "lucky")) == (
        "PrepareCommit",
        "CompleteCommit",
    )
    # Where markers can be written they are: nobody else is held up there.
    assert read(broker, "rides") == [b"unlucky", b"lucky"]
    lucky.write("rides", 0, b"again")
    lucky.commit()
    waiting = broker.start(unlucky.init_())
    let_pass(broker, 1_000)
    assert broker.finish(waiting).error_code == CONCURRENT_TRANSACTIONS

    restart(broker, crash=False)
    assert state_of(broker, "unlucky") == "CompleteCommit"
    assert read(broker, "fares", 1) == [b"v"]


def test_a_partition_that_fails_while_its_marker_is_synced_is_marked_after_a_restart(
    broker: RunningBroker,
) -> None:
    producer = Producer(broker)
    producer.write("rides", 0, b"v")
    broker.disk.faults.fail("sync", path="rides-0/*.log")
    assert producer.end(commit=True) == 0
    settle(broker)
    assert state_of(broker) == "PrepareCommit"

    restart(broker, crash=True)

    assert state_of(broker) == "CompleteCommit"
    assert read(broker, "rides") == [b"v"]


@both_protocols
@either_way
def test_a_transaction_ends_though_a_topic_that_it_wrote_to_was_deleted(
    broker: RunningBroker, speaks: dict[str, int], is_commit: bool
) -> None:
    producer = Producer(broker, speaks=speaks)
    for name in NAMES:
        producer.write(*name, b"v")
    broker.run(broker.broker.topics.delete("fares"))

    assert producer.end(commit=is_commit) == 0
    settle(broker)

    assert state_of(broker) == ("CompleteCommit" if is_commit else "CompleteAbort")
    assert read(broker, "rides") == ([b"v"] if is_commit else [])


def test_a_topic_deleted_while_its_marker_is_synced_holds_nobody_up(broker: RunningBroker) -> None:
    producer = Producer(broker)
    for name in NAMES:
        producer.write(*name, b"v")
    broker.offload.hold()
    ending = broker.start(producer.end_(commit=True))
    release(broker, 1)
    deleting = broker.start(broker.broker.topics.delete("fares"))
    assert state_of(broker) == "PrepareCommit"

    release(broker)

    broker.finish(deleting)
    assert broker.finish(ending).error_code == 0
    assert state_of(broker) == "CompleteCommit"


def test_a_topic_made_anew_under_the_same_name_is_not_part_of_the_old_transaction(
    broker: RunningBroker,
) -> None:
    producer = Producer(broker)
    producer.write("fares", 1, b"old")
    broker.run(broker.broker.topics.delete("fares"))
    broker.create_topic("fares", partitions=2)
    broker.produce("fares", 1, values=(b"new",))

    producer.abort()

    assert read(broker, "fares", 1) == [b"new"]
    assert not has_open_transaction(broker, "fares", 1)


def test_a_group_coordinator_that_still_loads_gets_its_marker_later(
    broker: RunningBroker,
) -> None:
    producer = Producer(broker)
    producer.write_offsets("drivers", ("rides", 0, 7))
    broker.offload.hold()
    ending = broker.start(producer.end_(commit=True))
    number = broker.broker.groups.runtimes.partition_of("drivers")
    runtimes = broker.broker.groups.runtimes

    async def load_anew() -> None:
        # As after a failure of its disk.
        runtimes.at(number).stop()
        runtimes._reopen_later(number)

    broker.run(load_anew())
    release(broker, 1)
    assert broker.finish(ending).error_code == 0
    release(broker)

    assert fetch_offsets(broker, "drivers", "rides", stable=True) == (0, 7)
    assert len(markers(broker, OFFSETS_TOPIC, number)) == 1
    assert state_of(broker) == "CompleteCommit"


# --- clients


@both_protocols
@either_way
def test_a_client_that_goes_away_while_its_transaction_ends_changes_nothing(
    broker: RunningBroker, speaks: dict[str, int], is_commit: bool
) -> None:
    producer = Producer(broker, speaks=speaks)
    producer.write("rides", 0, b"v")
    broker.offload.hold()
    ending = broker.start(producer.end_(commit=is_commit))

    # What the connection does when it is lost.
    ending.cancel()
    release(broker)

    assert ending.cancelled()
    assert state_of(broker) == ("CompleteCommit" if is_commit else "CompleteAbort")
    assert read(broker, "rides") == ([b"v"] if is_commit else [])


@both_protocols
def test_a_client_that_goes_away_while_it_waits_for_markers_leaves_nothing_behind(
    broker: RunningBroker, speaks: dict[str, int]
) -> None:
    Producer(broker, speaks=speaks).write("rides", 0, b"lost")
    broker.offload.hold()
    starting = broker.start(Producer(broker, init=False).init_())
    starting.cancel()
    release(broker)

    assert starting.cancelled()
    assert all(not runtime._waiting for runtime in runtimes(broker))
    producer = Producer(broker, speaks=speaks)
    producer.write("rides", 0, b"v")
    producer.commit()
    assert read(broker, "rides") == [b"v"]


@both_protocols
def test_of_two_that_start_under_one_name_at_the_same_time_one_is_left(
    broker: RunningBroker, speaks: dict[str, int]
) -> None:
    Producer(broker, speaks=speaks).write("rides", 0, b"lost")
    rivals = [Producer(broker, speaks=speaks, init=False) for _ in range(2)]
    broker.offload.hold()
    starting = [broker.start(one.init_()) for one in rivals]
    release(broker)
    assert [broker.finish(one).error_code for one in starting] == [0, 0]

    fenced, left = sorted(rivals, key=lambda one: one.epoch)
    assert fenced.epoch < left.epoch
    left.write("rides", 0, b"v")
    assert fenced.end(commit=True) == PRODUCER_FENCED
    left.commit()
    assert read(broker, "rides") == [b"v"]


# --- disks


@both_protocols
def test_without_room_nothing_begins_and_with_room_it_does(
    broker: RunningBroker, speaks: dict[str, int]
) -> None:
    producer = Producer(broker, speaks=speaks)

    broker.disk.faults.capacity_bytes = 0
    if producer.is_new:
        # Clients retry a write on this one.
        assert producer.send("rides", 0, b"v").error_code == NOT_ENOUGH_REPLICAS
    else:
        assert producer.add(("rides", 0)) == {("rides", 0): COORDINATOR_NOT_AVAILABLE}
    broker.disk.faults.capacity_bytes = None
    wait_until_loaded(broker)

    assert state_of(broker) == "Empty"
    producer.write("rides", 0, b"v")
    producer.commit()
    assert read(broker, "rides") == [b"v"]


@both_protocols
@either_way
def test_without_room_nothing_is_decided_and_the_end_can_be_asked_for_again(
    broker: RunningBroker, speaks: dict[str, int], is_commit: bool
) -> None:
    producer = Producer(broker, speaks=speaks)
    producer.write("rides", 0, b"v")

    broker.disk.faults.capacity_bytes = 0
    assert producer.end(commit=is_commit) == COORDINATOR_NOT_AVAILABLE
    broker.disk.faults.capacity_bytes = None
    wait_until_loaded(broker)

    assert state_of(broker) == "Ongoing"
    assert producer.end(commit=is_commit) == 0
    settle(broker)
    assert read(broker, "rides") == ([b"v"] if is_commit else [])


@both_protocols
@either_way
def test_without_room_for_markers_they_are_written_when_there_is(
    broker: RunningBroker, speaks: dict[str, int], is_commit: bool
) -> None:
    producer = Producer(broker, speaks=speaks)
    for name in NAMES:
        producer.write(*name, b"v")
    producer.write_offsets("drivers", ("rides", 1, 7))
    broker.offload.hold()
    ending = broker.start(producer.end_(commit=is_commit))
    broker.disk.faults.capacity_bytes = 0
    release(broker)
    assert broker.finish(ending).error_code == 0
    assert state_of(broker) == ("PrepareCommit" if is_commit else "PrepareAbort")
    assert markers(broker, "rides", 0) == []

    broker.disk.faults.capacity_bytes = None
    settle(broker)

    assert state_of(broker) == ("CompleteCommit" if is_commit else "CompleteAbort")
    for name in NAMES:
        assert read(broker, *name) == ([b"v"] if is_commit else [])
        assert len(markers(broker, *name)) == 1
    expected = (0, 7 if is_commit else -1)
    assert fetch_offsets(broker, "drivers", "rides", 1, stable=True) == expected


def test_without_room_for_the_completion_the_markers_are_written_once_more(
    broker: RunningBroker,
) -> None:
    producer = Producer(broker)
    producer.write("rides", 0, b"v")
    broker.offload.hold()
    ending = broker.start(producer.end_(commit=True))
    release(broker, 1)
    assert broker.finish(ending).error_code == 0
    broker.disk.faults.capacity_bytes = 0
    release(broker)
    broker.disk.faults.capacity_bytes = None
    wait_until_loaded(broker)
    settle(broker)

    assert state_of(broker) == "CompleteCommit"
    assert read(broker, "rides") == [b"v"]
    producer.write("rides", 0, b"w")
    producer.commit()
    assert read(broker, "rides") == [b"v", b"w"]


def test_without_room_for_offsets_their_commit_fails_and_the_transaction_can_be_aborted(
    broker: RunningBroker,
) -> None:
    producer = Producer(broker)
    assert producer.add_offsets("drivers") == 0

    broker.disk.faults.capacity_bytes = 0
    assert producer.commit_offsets("drivers", ("rides", 1, 7)) == [COORDINATOR_NOT_AVAILABLE]
    broker.disk.faults.capacity_bytes = None
    wait_until_loaded(broker)

    producer.abort()
    assert fetch_offsets(broker, "drivers", "rides", 1, stable=True) == (0, -1)


def test_without_room_for_records_the_producer_is_told_and_may_go_on(
    broker: RunningBroker,
) -> None:
    producer = Producer(broker)
    producer.write("rides", 0, b"a")

    broker.disk.faults.capacity_bytes = 0
    assert producer.send("rides", 0, b"b").error_code == STORAGE_ERROR
    broker.disk.faults.capacity_bytes = None

    assert producer.send("rides", 0, b"b").error_code == 0
    producer.commit()
    assert read(broker, "rides") == [b"a", b"b"]


def test_a_coordinator_whose_disk_fails_sends_away_also_who_waits_for_markers(
    broker: RunningBroker,
) -> None:
    """Its request came to a decision that was never committed, so no marker will ever answer it."""
    Producer(broker).write("rides", 0, b"v")
    broker.disk.faults.fail("sync", path=f"{STATE_TOPIC}-*/*.log")
    asking = broker.start(Producer(broker, init=False).init_())
    assert broker.broker.partitions.find("rides", 0).is_online

    let_pass(broker, 1_000)

    assert asking.done()
    assert broker.finish(asking).error_code == COORDINATOR_NOT_AVAILABLE
    assert not markers(broker, "rides", 0)
    restart(broker, crash=True)
    let_pass(broker, TIMEOUT_MS)
    assert state_of(broker) == "CompleteAbort"


def test_a_coordinator_that_is_offline_takes_only_its_own_ids_with_it(
    broker: RunningBroker,
) -> None:
    runtimes = broker.broker.transactions.runtimes
    names = {runtimes.partition_of(f"id {number}"): f"id {number}" for number in range(9)}
    here, there = Producer(broker, names[1]), Producer(broker, names[2])
    for producer in (here, there):
        producer.write("rides", 0, b"v")
    broker.take_offline(STATE_TOPIC, 1)

    assert here.end(commit=True) == COORDINATOR_NOT_AVAILABLE
    settle(broker)
    assert here.end(commit=True) == NOT_COORDINATOR
    there.commit()
    assert has_open_transaction(broker, "rides")

    restart(broker, crash=True)
    assert here.end(commit=True) == 0
    settle(broker)
    assert read(broker, "rides") == [b"v", b"v"]
    # The crash may have taken the record that the other transaction is complete: its marker is written again.
    assert broker.offset("rides", at=LATEST) in {4, 5}
