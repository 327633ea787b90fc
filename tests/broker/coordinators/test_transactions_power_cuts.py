"""Transactions and power cuts: at every sync of one, between its decision and its markers, and between markers."""

from dataclasses import dataclass

import pytest

from broker.running_broker import RunningBroker, StartBroker
from broker.transaction_client import (
    NEW,
    OLD,
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
)

both_protocols = pytest.mark.parametrize("speaks", [OLD, NEW], ids=["version 1", "version 2"])
either_way = pytest.mark.parametrize("is_commit", [False, True], ids=["abort", "commit"])
NAMES = (("rides", 0), ("fares", 1))


@pytest.fixture
def broker(start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch) -> RunningBroker:
    retry_at_once(monkeypatch)
    return start_with_transactions(start_broker)


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
        broker.disk._rng.seed(seed)
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
    (missing,) = (one.coordinator_epoch for one in markers(broker, "fares", 1))
    assert missing > 0
    # In version 2 a marker that comes for the second time is known by its epoch.
    epochs = [one.coordinator_epoch for one in markers(broker, "rides", 0)]
    assert epochs == ([0] if producer.is_new else [0, missing])


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


@both_protocols
@either_way
def test_a_power_cut_takes_no_transactions_end_from_a_topic_that_promises_less(
    broker: RunningBroker, speaks: dict[str, int], is_commit: bool
) -> None:
    broker.create_topic("weak", partitions=1, **{"respool.flush": "os"})
    weak = broker.broker.partitions.find("weak", 0)
    producer = Producer(broker, speaks=speaks)
    producer.write("weak", 0, b"v")
    # As the system may do at any time.
    pending = weak.log.begin_sync()
    # The folder of a new log is synced with its first record anyway.
    if pending is not None:
        pending.run()
    assert producer.end(commit=is_commit) == 0
    settle(broker)
    assert state_of(broker) == ("CompleteCommit" if is_commit else "CompleteAbort")

    restart(broker, crash=True)

    assert not has_open_transaction(broker, "weak")
    # Otherwise the next transaction would decide on the last one's records.
    Producer(broker, speaks=speaks).write("weak", 0, b"w")
    Producer(broker, speaks=speaks)
    assert read(broker, "weak") == ([b"v"] if is_commit else [])
