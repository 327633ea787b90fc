"""Transactions when things break: power cuts at every step, full disks, partitions that go offline or are deleted."""

from dataclasses import dataclass

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


# --- power cuts


@dataclass
class Told:
    """What the client knows when the power goes."""

    is_ended: bool = False


async def read_transform_write(producer: Producer, told: Told, *, is_commit: bool) -> None:
    if not producer.is_new:
        assert set((await producer.add_(*NAMES)).values()) == {0}
    for name in NAMES:
        assert (await producer.send_(*name, b"v")).error_code == 0
    if not producer.is_new:
        assert await producer.add_offsets_("drivers") == 0
    assert await producer.commit_offsets_("drivers", ("rides", 1, 7)) == [0]
    assert (await producer.end_(commit=is_commit)).error_code == 0
    told.is_ended = True


@both_protocols
@either_way
@pytest.mark.parametrize("seed", range(2))
def test_a_power_cut_at_any_step_leaves_the_transaction_whole(
    start_broker: StartBroker, speaks: dict[str, int], is_commit: bool, seed: int
) -> None:
    outcomes = set()
    works, has_finished = 0, False
    while not has_finished:
        broker = start_with_transactions(start_broker)
        broker.disk._dice.seed(seed)
        producer, told = Producer(broker, speaks=speaks), Told()
        broker.offload.hold()
        task = broker.start(read_transform_write(producer, told, is_commit=is_commit))
        for _ in range(works):
            release(broker, 1)
        has_finished = told.is_ended and not broker.offload.held
        task.cancel()

        restart(broker, crash=True)
        outcomes.add(check_whole(broker, told, is_commit=is_commit))
        works += 1
    # Three syncs for two partitions and the offsets, and more of the coordinator, before and after.
    assert works > 6
    assert outcomes == ({True, False} if is_commit else {False})


def check_whole(broker: RunningBroker, told: Told, *, is_commit: bool) -> bool:
    """Whatever was decided is so everywhere, and nothing is left open. Says whether it was committed."""
    if told.is_ended:
        assert state_of(broker) == ("CompleteCommit" if is_commit else "CompleteAbort")
    elif state_of(broker) == "Ongoing":
        let_pass(broker, TIMEOUT_MS)
    state = state_of(broker)
    assert state in ("Empty", "CompleteCommit", "CompleteAbort")
    is_committed = state == "CompleteCommit"
    assert is_commit or not is_committed
    for name in NAMES:
        assert not has_open_transaction(broker, *name)
        assert read(broker, *name) == ([b"v"] if is_committed else [])
    expected = (0, 7 if is_committed else -1)
    assert fetch_offsets(broker, "drivers", "rides", 1, stable=True) == expected

    successor = Producer(broker)
    successor.write("rides", 0, b"next")
    successor.commit()
    assert read(broker, "rides") == ([b"v", b"next"] if is_committed else [b"next"])
    return is_committed


@both_protocols
@either_way
def test_what_was_decided_is_marked_after_a_power_cut_before_the_markers(
    broker: RunningBroker, speaks: dict[str, int], is_commit: bool
) -> None:
    producer = Producer(broker, speaks=speaks)
    for name in NAMES:
        producer.write(*name, b"v")
    broker.offload.hold()
    ending = broker.start(producer.end_(commit=is_commit))
    # The sync of the decision, and none of a marker.
    release(broker, 1)
    assert broker.finish(ending).error_code == 0

    restart(broker, crash=True)

    assert state_of(broker) == ("CompleteCommit" if is_commit else "CompleteAbort")
    for name in NAMES:
        assert {one.is_commit for one in markers(broker, *name)} == {is_commit}
        assert read(broker, *name) == ([b"v"] if is_commit else [])


@both_protocols
@either_way
def test_what_was_marked_in_part_is_marked_everywhere_after_a_power_cut(
    broker: RunningBroker, speaks: dict[str, int], is_commit: bool
) -> None:
    producer = Producer(broker, speaks=speaks)
    for name in NAMES:
        producer.write(*name, b"v")
    producer.write_offsets("drivers", ("rides", 1, 7))
    broker.take_offline("fares", 1)
    assert producer.end(commit=is_commit) == 0
    settle(broker)
    assert len(markers(broker, "rides", 0)) == 1
    assert state_of(broker) == ("PrepareCommit" if is_commit else "PrepareAbort")

    restart(broker, crash=True)

    assert state_of(broker) == ("CompleteCommit" if is_commit else "CompleteAbort")
    for name in NAMES:
        assert {one.is_commit for one in markers(broker, *name)} == {is_commit}
        assert read(broker, *name) == ([b"v"] if is_commit else [])
        assert not has_open_transaction(broker, *name)
    expected = (0, 7 if is_commit else -1)
    assert fetch_offsets(broker, "drivers", "rides", 1, stable=True) == expected
    # The coordinator after the crash is a newer one, and partitions remember it.
    epochs = [one.coordinator_epoch for one in markers(broker, "rides", 0)]
    assert epochs == sorted(epochs)
    assert epochs[-1] > 0


def test_a_clean_stop_leaves_missing_markers_to_the_next_start(broker: RunningBroker) -> None:
    producer = Producer(broker)
    producer.write("rides", 0, b"v")
    broker.take_offline("rides", 0)
    assert producer.end(commit=True) == 0
    settle(broker)

    restart(broker, crash=False)

    assert state_of(broker) == "CompleteCommit"
    assert read(broker, "rides") == [b"v"]


def test_a_power_cut_over_and_over_while_markers_are_written_ends_the_transaction_once(
    broker: RunningBroker,
) -> None:
    producer = Producer(broker)
    producer.write("rides", 0, b"v")
    broker.take_offline("rides", 0)
    producer.end(commit=True)
    for _ in range(3):
        restart(broker, crash=True)

    assert read(broker, "rides") == [b"v"]
    assert state_of(broker) == "CompleteCommit"
    producer.write("rides", 0, b"w")
    producer.abort()
    assert read(broker, "rides") == [b"v"]


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
    number = broker.broker.groups.shards.partition_of("drivers")
    shards = broker.broker.groups.shards

    async def load_anew() -> None:
        # As after a failure of its disk.
        shards.at(number).stop()
        shards._reopen_later(number)

    broker.run(load_anew())
    release(broker, 1)
    assert broker.finish(ending).error_code == 0
    release(broker)

    assert fetch_offsets(broker, "drivers", "rides", stable=True) == (0, 7)
    assert len(markers(broker, OFFSETS_TOPIC, number)) == 1
    assert state_of(broker) == "CompleteCommit"


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
    shards = broker.broker.transactions.shards
    names = {shards.partition_of(f"id {number}"): f"id {number}" for number in range(9)}
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
    assert broker.offset("rides", at=LATEST) == 4
