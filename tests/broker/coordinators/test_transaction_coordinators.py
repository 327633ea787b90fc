"""Transactions from request bytes to reply bytes: what readers see of them, and when."""

import asyncio

import pytest

from broker.running_broker import LATEST, RunningBroker, StartBroker
from broker.transaction_client import (
    INVALID_PRODUCER_EPOCH,
    INVALID_TXN_STATE,
    NEW,
    OFFSETS_TOPIC,
    OLD,
    PRODUCER_FENCED,
    STATE_TOPIC,
    TIMEOUT_MS,
    TRANSACTION_ABORTABLE,
    UNSTABLE_OFFSET_COMMIT,
    Producer,
    describe,
    fetch,
    fetch_fields,
    fetch_offsets,
    has_open_transaction,
    last_stable_offset,
    let_pass,
    markers,
    only,
    read,
    release,
    restart,
    settle,
    start_with_transactions,
    state_of,
    values_of,
)
from respool.wire.api_table import Api

LONG_MS = 600_000

both_protocols = pytest.mark.parametrize("speaks", [OLD, NEW], ids=["version 1", "version 2"])
either_way = pytest.mark.parametrize("is_commit", [False, True], ids=["abort", "commit"])
either_end = pytest.mark.parametrize("crash", [False, True], ids=["clean", "crash"])


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    return start_with_transactions(start_broker)


def end(producer: Producer, *, is_commit: bool) -> None:
    if is_commit:
        producer.commit()
    else:
        producer.abort()


# --- what readers see


@both_protocols
@either_way
def test_records_and_offsets_of_a_transaction_count_together_or_not_at_all(
    broker: RunningBroker, speaks: dict[str, int], is_commit: bool
) -> None:
    producer = Producer(broker, speaks=speaks)
    producer.write("rides", 0, b"a", b"b")
    producer.write("rides", 2, b"c")
    producer.write("fares", 1, b"d")
    producer.write_offsets("drivers", ("rides", 1, 7))
    names = [("rides", 0), ("rides", 2), ("fares", 1)]

    assert [read(broker, *name) for name in names] == [[], [], []]
    assert read(broker, "rides", 0, committed=False) == [b"a", b"b"]
    assert fetch_offsets(broker, "drivers", "rides", 1, stable=False) == (0, -1)
    assert fetch_offsets(broker, "drivers", "rides", 1, stable=True)[0] == UNSTABLE_OFFSET_COMMIT

    end(producer, is_commit=is_commit)

    everything = [[b"a", b"b"], [b"c"], [b"d"]]
    assert [read(broker, *name) for name in names] == (everything if is_commit else [[], [], []])
    assert [read(broker, *name, committed=False) for name in names] == everything
    for stable in (False, True):
        expected = (0, 7 if is_commit else -1)
        assert fetch_offsets(broker, "drivers", "rides", 1, stable=stable) == expected
    assert not any(has_open_transaction(broker, *name) for name in names)


@both_protocols
def test_the_last_stable_offset_stays_before_the_first_open_transaction(
    broker: RunningBroker, speaks: dict[str, int]
) -> None:
    broker.produce("rides", values=(b"plain",))
    first, second = (Producer(broker, name, speaks=speaks) for name in ("first", "second"))
    first.write("rides", 0, b"one")
    second.write("rides", 0, b"two")
    broker.produce("rides", values=(b"later",))

    assert last_stable_offset(broker, "rides") == 1
    second.commit()
    # What ended first waits for what began first.
    assert last_stable_offset(broker, "rides") == 1
    assert read(broker, "rides") == [b"plain"]
    first.abort()

    assert last_stable_offset(broker, "rides") == broker.offset("rides", at=LATEST) == 6
    assert read(broker, "rides") == [b"plain", b"two", b"later"]


def test_readers_are_told_of_aborted_transactions_only_if_they_ask(broker: RunningBroker) -> None:
    producer = Producer(broker)
    producer.write("rides", 0, b"lost")
    producer.abort()

    careful, careless = (fetch(broker, "rides", committed=one) for one in (True, False))

    assert [(one.producer_id, one.first_offset) for one in careful.aborted_transactions] == [
        (producer.id, 0)
    ]
    assert careless.aborted_transactions is None
    assert careful.last_stable_offset == careless.last_stable_offset == 2


@both_protocols
@either_way
def test_the_end_of_a_transaction_wakes_a_reader_that_waits_for_it(
    broker: RunningBroker, speaks: dict[str, int], is_commit: bool
) -> None:
    producer = Producer(broker, speaks=speaks)
    waiting = fetch_fields("rides", committed=True, wait_ms=LONG_MS)
    careful = broker.start(broker.answer(Api.FETCH, 12, **waiting))
    hasty = broker.start(
        broker.answer(Api.FETCH, 12, **{**waiting, "isolation_level": 0}),
    )

    producer.write("rides", 0, b"a")
    settle(broker)
    assert hasty.done()
    assert not careful.done()

    end(producer, is_commit=is_commit)
    assert careful.done()
    assert values_of(only(broker.finish(careful))) == ([b"a"] if is_commit else [])
    assert values_of(only(broker.finish(hasty))) == [b"a"]


@either_end
def test_readers_see_the_same_after_a_restart(broker: RunningBroker, crash: bool) -> None:
    one, two, three = (Producer(broker, name) for name in ("one", "two", "three"))
    for producer in (one, two, three):
        producer.write("rides", 0, producer.transactional_id.encode())
    two.abort()
    one.commit()
    before = fetch(broker, "rides", committed=True)

    restart(broker, crash=crash)

    assert read(broker, "rides") == [b"one"]
    after = fetch(broker, "rides", committed=True)
    assert after.aborted_transactions == before.aborted_transactions
    assert after.last_stable_offset == before.last_stable_offset == 2
    three.commit()
    assert read(broker, "rides") == [b"one", b"three"]


# --- time


@both_protocols
def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(
    broker: RunningBroker, speaks: dict[str, int]
) -> None:
    producer = Producer(broker, speaks=speaks)
    producer.write("rides", 0, b"slow")
    producer.write_offsets("drivers", ("rides", 1, 7))

    let_pass(broker, TIMEOUT_MS - 1)
    assert state_of(broker) == "Ongoing"
    let_pass(broker, 1)

    assert state_of(broker) == "CompleteAbort"
    assert read(broker, "rides") == []
    assert not has_open_transaction(broker, "rides")
    assert fetch_offsets(broker, "drivers", "rides", 1, stable=True) == (0, -1)
    assert producer.send("rides", 0, b"more").error_code == INVALID_PRODUCER_EPOCH
    assert producer.commit_offsets("drivers", ("rides", 1, 8)) == [INVALID_PRODUCER_EPOCH]
    assert producer.end(commit=True) == PRODUCER_FENCED
    assert producer.init().error_code == 0
    producer.write("rides", 0, b"again")
    producer.commit()
    assert read(broker, "rides") == [b"again"]


@either_end
def test_time_runs_on_over_a_restart(broker: RunningBroker, crash: bool) -> None:
    producer = Producer(broker)
    producer.write("rides", 0, b"slow")
    let_pass(broker, TIMEOUT_MS // 2)

    restart(broker, crash=crash)
    let_pass(broker, TIMEOUT_MS // 2)

    assert state_of(broker) == "CompleteAbort"
    assert read(broker, "rides") == []


def test_an_id_that_nobody_uses_is_forgotten(start_broker: StartBroker) -> None:
    broker = start_with_transactions(
        start_broker,
        transactional_id_expiration_ms=10_000,
        transactional_id_expiration_check_interval_ms=1_000,
    )
    idle, busy = Producer(broker, "idle"), Producer(broker, "busy")
    let_pass(broker, 9_000)
    busy.write("rides")
    let_pass(broker, 1_000)

    listed = broker.ask(Api.LIST_TRANSACTIONS, 0, state_filters=[], producer_id_filters=[])
    assert [one.transactional_id for one in listed.transaction_states] == ["busy"]
    again = Producer(broker, "idle")
    assert again.id != idle.id


# --- zombies


@both_protocols
def test_a_zombie_can_do_nothing_to_the_transaction_of_its_successor(
    broker: RunningBroker, speaks: dict[str, int]
) -> None:
    zombie = Producer(broker, speaks=speaks)
    zombie.write("rides", 0, b"zombie")
    zombie.write_offsets("drivers", ("rides", 1, 1))
    producer = Producer(broker, speaks=speaks)
    producer.write("rides", 0, b"a")
    producer.write_offsets("drivers", ("rides", 1, 7))

    assert zombie.send("rides", 0, b"x").error_code == INVALID_PRODUCER_EPOCH
    assert zombie.send("rides", 1, b"x").error_code == INVALID_PRODUCER_EPOCH
    assert zombie.commit_offsets("drivers", ("rides", 1, 2)) == [INVALID_PRODUCER_EPOCH]
    for is_commit in (False, True):
        assert zombie.end(commit=is_commit) == PRODUCER_FENCED
    producer.commit()

    assert read(broker, "rides") == [b"a"]
    assert read(broker, "rides", 1, committed=False) == []
    assert fetch_offsets(broker, "drivers", "rides", 1, stable=True) == (0, 7)


@pytest.mark.parametrize("version", [3, 10, 11])
@either_way
def test_what_comes_after_its_transactions_end_is_refused(
    broker: RunningBroker, version: int, is_commit: bool
) -> None:
    producer = Producer(broker)
    producer.write("rides", 0, b"a")
    end(producer, is_commit=is_commit)

    late = producer.send("rides", 0, b"late", version=version)

    assert late.error_code == (TRANSACTION_ABORTABLE if version == 11 else INVALID_TXN_STATE)
    assert not has_open_transaction(broker, "rides")


@either_way
def test_what_comes_late_does_not_cross_over_into_the_next_transaction(
    broker: RunningBroker, is_commit: bool
) -> None:
    producer = Producer(broker, speaks=NEW)
    producer.write("rides", 0, b"a")
    late = producer.zombie()
    end(producer, is_commit=is_commit)

    assert late.send("rides", 0, b"late").error_code == INVALID_PRODUCER_EPOCH
    assert late.send("rides", 1, b"late").error_code == INVALID_PRODUCER_EPOCH
    producer.write("rides", 0, b"b")
    assert late.send("rides", 0, b"late").error_code == INVALID_PRODUCER_EPOCH
    producer.commit()

    assert read(broker, "rides") == ([b"a", b"b"] if is_commit else [b"b"])
    assert read(broker, "rides", 1, committed=False) == []


@both_protocols
def test_a_batch_whose_transaction_ends_while_it_is_verified_is_not_taken(
    broker: RunningBroker, speaks: dict[str, int]
) -> None:
    """1. The coordinator says yes.   2. The transaction is aborted.   3. The yes arrives where the batch waits."""
    producer = Producer(broker, speaks=speaks)
    broker.offload.hold()
    if not producer.is_new:
        broker.start(producer.add_(("rides", 0)))
    sending = broker.start(producer.send_("rides", 0, b"late"))
    ending = broker.start(producer.end_(commit=False))
    assert not sending.done()

    release(broker)

    assert broker.finish(ending).error_code == 0
    late = broker.finish(sending)
    assert late.error_code in (INVALID_TXN_STATE, INVALID_PRODUCER_EPOCH)
    assert not has_open_transaction(broker, "rides")
    assert read(broker, "rides", committed=False) == []


# --- retries, groups, many at once


@both_protocols
@either_end
def test_a_retry_within_a_transaction_is_recognised_after_a_restart(
    broker: RunningBroker, speaks: dict[str, int], crash: bool
) -> None:
    producer = Producer(broker, speaks=speaks)
    offsets = [producer.write("rides", 0, value) for value in (b"a", b"b", b"c")]

    restart(broker, crash=crash)
    again = [producer.send("rides", 0, b"?", sequence=number) for number in range(3)]

    assert [(one.error_code, one.base_offset) for one in again] == [(0, one) for one in offsets]
    producer.write("rides", 0, b"d")
    producer.commit()
    assert read(broker, "rides") == [b"a", b"b", b"c", b"d"]


def test_an_ordinary_commit_of_offsets_is_not_held_up_by_an_open_transaction(
    broker: RunningBroker,
) -> None:
    producer = Producer(broker)
    producer.write_offsets("drivers", ("rides", 0, 7))
    other = Producer(broker, "shop")
    other.write_offsets("drivers", ("rides", 1, 9))

    other.commit()

    assert fetch_offsets(broker, "drivers", "rides", 1, stable=True) == (0, 9)
    assert fetch_offsets(broker, "drivers", "rides", 0, stable=True)[0] == UNSTABLE_OFFSET_COMMIT


@either_end
def test_offsets_of_an_open_transaction_are_as_before_after_a_restart(
    broker: RunningBroker, crash: bool
) -> None:
    producer = Producer(broker)
    producer.write_offsets("drivers", ("rides", 0, 7))

    restart(broker, crash=crash)

    assert fetch_offsets(broker, "drivers", "rides", stable=False) == (0, -1)
    assert fetch_offsets(broker, "drivers", "rides", stable=True)[0] == UNSTABLE_OFFSET_COMMIT
    producer.commit()
    restart(broker, crash=crash)
    assert fetch_offsets(broker, "drivers", "rides", stable=True) == (0, 7)


@both_protocols
def test_many_transactions_at_once_do_not_get_into_each_others_way(
    broker: RunningBroker, speaks: dict[str, int]
) -> None:
    producers = [Producer(broker, f"id {number}", speaks=speaks) for number in range(12)]

    async def work(number: int, producer: Producer) -> None:
        for turn in range(4):
            value = f"{number}.{turn}".encode()
            for name in (("rides", number % 3), ("fares", 0)):
                if not producer.is_new:
                    assert set((await producer.add_(name)).values()) == {0}
                assert (await producer.send_(*name, value)).error_code == 0
            assert (await producer.end_(commit=turn % 2 == 0)).error_code == 0

    async def work_all() -> None:
        await asyncio.gather(*(work(number, one) for number, one in enumerate(producers)))

    broker.run(work_all())
    settle(broker)

    expected = {f"{number}.{turn}".encode() for number in range(12) for turn in (0, 2)}
    assert set(read(broker, "fares", 0)) == expected
    assert len(read(broker, "fares", 0)) == len(expected)
    rides = [value for number in range(3) for value in read(broker, "rides", number)]
    assert sorted(rides) == sorted(expected)


def test_markers_are_written_only_where_the_transaction_was(broker: RunningBroker) -> None:
    producer = Producer(broker)
    producer.write("rides", 0)
    # Added, and nothing written there: the coordinator cannot know.
    producer.add(("rides", 1))
    producer.write_offsets("drivers", ("rides", 0, 7))
    (offsets,) = [one for one in describe(broker).topics if one.topic == OFFSETS_TOPIC]
    producer.abort()

    assert [len(markers(broker, "rides", number)) for number in range(3)] == [1, 1, 0]
    assert len(markers(broker, OFFSETS_TOPIC, *offsets.partitions)) == 1
    assert fetch(broker, "rides", 1, committed=True).aborted_transactions == ()


@pytest.mark.parametrize("flush", ["always", "interval", "os"])
def test_however_a_topic_is_synced_its_transactions_end(broker: RunningBroker, flush: str) -> None:
    broker.create_topic("quick", respool_flush=flush)
    producer = Producer(broker, speaks=NEW)
    for number in range(5):
        producer.write("quick", 0, b"%d" % number)
        assert producer.end(commit=number % 2 == 0) == 0
    settle(broker)

    assert read(broker, "quick") == [b"0", b"2", b"4"]
    assert not has_open_transaction(broker, "quick")
    assert state_of(broker) == "CompleteCommit"


@both_protocols
@either_end
def test_offsets_and_transactions_are_the_same_after_compaction(
    broker: RunningBroker, speaks: dict[str, int], crash: bool
) -> None:
    for topic in (OFFSETS_TOPIC, STATE_TOPIC):
        make_segments_small(broker, topic)
    producer, open_one = (Producer(broker, name, speaks=speaks) for name in ("bank", "open"))
    open_one.write_offsets("riders", ("rides", 0, 5))
    compactions = 0
    for number in range(60):
        producer.write_offsets("drivers", ("rides", number % 3, number))
        # Those of partition 0 are always aborted.
        end(producer, is_commit=number % 3 != 0)
        if number % 20 == 19:
            compactions += compact(broker)
    assert compactions > 2

    restart(broker, crash=crash)

    found = [fetch_offsets(broker, "drivers", "rides", one, stable=True) for one in range(3)]
    assert found == [(0, -1), (0, 58), (0, 59)]
    assert fetch_offsets(broker, "riders", "rides", stable=True)[0] == UNSTABLE_OFFSET_COMMIT
    assert (state_of(broker, "bank"), state_of(broker, "open")) == ("CompleteCommit", "Ongoing")
    open_one.commit()
    assert fetch_offsets(broker, "riders", "rides", stable=True) == (0, 5)


def make_segments_small(broker: RunningBroker, topic: str) -> None:
    """So that compaction finds something to do: it leaves the segment alone that is written to."""
    wanted = {
        "segment.bytes": "1024",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "0",
    }
    configs = [{"name": name, "config_operation": 0, "value": one} for name, one in wanted.items()]
    resource = {"resource_type": 2, "resource_name": topic, "configs": configs}
    reply = broker.ask(Api.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
    assert reply.responses[0].error_code == 0


def compact(broker: RunningBroker) -> int:
    """Compact all that is due; return how many logs were."""
    count = 0
    while broker.run(broker.broker.housekeeping._compactor.compact_dirtiest()):
        count += 1
    return count
