"""Transactions' ends in partitions that another broker leads."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from broker.transaction_client import (
    NEW,
    NOT_LEADER,
    Producer,
    fetch_offsets,
    has_open_transaction,
    read,
    restart,
)
from broker.two_brokers import (
    NAMES,
    TWO,
    TwoBrokers,
    both_protocols,
    call,
    coordinator_epoch,
    either_way,
    end,
    ends_at,
    producer_at,
    state,
)
from respool.broker.coordinators.marker_writer import _Marking
from respool.model.errors import NotLeader
from respool.model.ids import BrokerId, TopicPartition
from respool.pacing.backoff import Backoff
from respool.records.markers import EndTransactionMarker
from respool.wire.api_table import Api

FIRST, SECOND = TopicPartition("rides", 0), TopicPartition("rides", 1)


@both_protocols
@either_way
def test_a_transactions_end_comes_to_partitions_of_both_brokers(
    world: TwoBrokers, speaks: dict[str, int], is_commit: bool
) -> None:
    producer = producer_at(world, speaks)
    for name in NAMES:
        producer.write(*name, b"v")
    group = world.group_id(at=world.two)
    producer.write_offsets(group, ("rides", 0, 7))
    written_with = producer.epoch
    end(world, producer, commit=is_commit)

    assert state(world, producer) == ("CompleteCommit" if is_commit else "CompleteAbort")
    for name in NAMES:
        (marker,) = ends_at(world, name)
        assert marker.is_commit is is_commit
        assert marker.coordinator_epoch == coordinator_epoch(world, producer)
        # In version 2 the end has the next epoch.
        assert marker.producer_epoch == written_with + (speaks is NEW)
        assert read(world.at(*name), *name) == ([b"v"] if is_commit else [])
        assert not has_open_transaction(world.at(*name), *name)
    expected = (0, 7 if is_commit else -1)
    assert fetch_offsets(world.two, group, "rides", stable=True) == expected


def test_all_ends_for_a_broker_go_in_one_request_and_later_ones_in_the_next(
    world: TwoBrokers,
) -> None:
    producers = [
        Producer(world, one)  # type: ignore[arg-type]
        for one in map("bank-{}".format, range(20))
        if world.coordinator(one) is world.one
    ][:4]
    for producer in producers:
        producer.write("rides", 1)
        producer.write("rides", 2)
    world.network.gate = asyncio.Event()
    for producer in producers:
        assert producer.end(commit=True) == 0
    world.settle()
    world.network.gate.set()
    world.settle(3)

    first, second = world.network.bodies(Api.WRITE_TXN_MARKERS)
    assert [len(one.markers) for one in (first, second)] == [1, 3]
    assert [list(one.topics[0].partition_indexes) for one in second.markers] == [[1, 2]] * 3
    assert {state(world, one) for one in producers} == {"CompleteCommit"}


def test_what_this_broker_leads_is_written_without_a_request(world: TwoBrokers) -> None:
    producer = producer_at(world)
    producer.write("rides", 0)
    end(world, producer, commit=True)

    assert state(world, producer) == "CompleteCommit"
    assert world.network.asked == []


@both_protocols
def test_an_end_whose_reply_was_lost_is_sent_again_and_counts_once(
    world: TwoBrokers, speaks: dict[str, int]
) -> None:
    producer = producer_at(world, speaks)
    producer.write("rides", 1, b"a")
    world.network.reply_loss = 1
    assert producer.end(commit=False) == 0
    world.settle()
    assert state(world, producer) == "PrepareAbort"
    world.network.reply_loss = 0
    world.settle(3)

    assert state(world, producer) == "CompleteAbort"
    ends = ends_at(world, TopicPartition("rides", 1))
    # In version 2 the second is known to be one; before, it changes nothing.
    assert len(ends) == 1 if speaks is NEW else len(ends) > 1
    producer.write("rides", 1, b"b")
    end(world, producer, commit=True)
    assert read(world.two, "rides", 1) == [b"b"]


def test_a_repeated_end_of_version_2_counts_only_when_the_first_is_on_the_disk(
    world: TwoBrokers,
) -> None:
    producer = producer_at(world, NEW)
    producer.write("rides", 1)
    world.two.offload.hold()
    world.network.is_impatient = True
    assert producer.end(commit=True) == 0
    world.settle()
    world.network.is_impatient = False
    world.settle(3)
    assert state(world, producer) == "PrepareCommit"

    world.run(call(world.two.offload.release))
    world.settle(3)
    assert state(world, producer) == "CompleteCommit"
    assert len(ends_at(world, TopicPartition("rides", 1))) == 1


def test_an_end_waits_for_a_broker_that_is_away(world: TwoBrokers) -> None:
    producer = producer_at(world)
    producer.write("rides", 1)
    producer.write("rides", 0)
    world.network.cut_off = {TWO}
    end(world, producer, commit=True)
    assert state(world, producer) == "PrepareCommit"
    assert len(ends_at(world, TopicPartition("rides", 0))) == 1

    world.network.cut_off = set()
    world.settle(3)
    assert state(world, producer) == "CompleteCommit"


def test_an_end_waits_while_nobody_leads_and_goes_to_the_leader_there_is_then(
    world: TwoBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It would be tried again only much later.
    monkeypatch.setattr(
        "respool.broker.coordinators.marker_writer.RETRY_S", Backoff(first=10, longest=10)
    )
    name = TopicPartition("rides", 1)
    producer = producer_at(world)
    producer.write(*name)
    world.set_leader(name, None)
    end(world, producer, commit=True)
    assert world.network.bodies(Api.WRITE_TXN_MARKERS) == []

    world.set_leader(name, TWO)
    world.run(call(world.one.broker.markers.on_leaders_changed))
    world.settle(3)
    assert state(world, producer) == "CompleteCommit"


def test_a_broker_that_does_not_know_a_topic_yet_is_asked_again(
    world: TwoBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = producer_at(world)
    producer.write("rides", 1)
    held = world.two.broker.partitions._partitions.pop(("rides", 1))
    image = world.two.broker.catalog.image
    monkeypatch.setattr(
        world.two.broker.catalog,
        "image",
        type(image)(
            cluster_id=image.cluster_id,
            brokers=image.brokers,
            controller=image.controller,
            topics={name: one for name, one in image.topics.items() if name != "rides"},
        ),
    )
    end(world, producer, commit=True)
    assert state(world, producer) == "PrepareCommit"

    world.two.broker.catalog.image = image
    world.two.broker.partitions._partitions["rides", 1] = held
    world.settle(3)
    assert state(world, producer) == "CompleteCommit"


def test_a_topic_that_is_gone_has_nothing_to_end(
    world: TwoBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = producer_at(world)
    producer.write("rides", 1)
    world.network.cut_off = {TWO}
    assert producer.end(commit=True) == 0
    world.settle()
    image = world.one.broker.catalog.image
    gone = {name: one for name, one in image.topics.items() if name != "rides"}
    monkeypatch.setattr(
        world.one.broker.catalog,
        "image",
        type(image)(
            cluster_id=image.cluster_id,
            brokers=image.brokers,
            controller=image.controller,
            topics=gone,
        ),
    )
    world.settle()
    assert state(world, producer) == "CompleteCommit"


def test_a_coordinator_that_another_has_replaced_stops_and_calls_nothing_written(
    world: TwoBrokers, caplog: pytest.LogCaptureFixture
) -> None:
    name = TopicPartition("rides", 1)
    producer = producer_at(world)
    # The new one has been there with an earlier transaction.
    newer = EndTransactionMarker(
        producer_id=producer.id, producer_epoch=producer.epoch, coordinator_epoch=9, is_commit=True
    )
    world.run(call(lambda: world.two.broker.markers.append(newer, name)))
    producer.write(*name)
    end(world, producer, commit=True)

    assert "this one stops" in caplog.text
    assert state(world, producer) == "PrepareCommit"
    assert len(world.network.bodies(Api.WRITE_TXN_MARKERS)) == 1
    assert has_open_transaction(world.two, *name)


def test_what_a_newer_producer_has_ended_is_not_needed(world: TwoBrokers) -> None:
    name = TopicPartition("rides", 1)
    producer = producer_at(world)
    assert set(producer.add(name).values()) == {0}
    newer = EndTransactionMarker(
        producer_id=producer.id,
        producer_epoch=producer.epoch + 5,
        coordinator_epoch=0,
        is_commit=True,
    )
    world.run(call(lambda: world.two.broker.markers.append(newer, name)))
    end(world, producer, commit=True)

    assert state(world, producer) == "CompleteCommit"
    assert len(ends_at(world, name)) == 1


def test_ends_that_no_coordinator_wants_any_more_are_not_sent(world: TwoBrokers) -> None:
    producer = producer_at(world)
    producer.write("rides", 1)
    world.network.cut_off = {TWO}
    assert producer.end(commit=True) == 0
    world.settle()
    for _, runtime in world.one.broker.transactions.runtimes:
        world.run(call(runtime.stop))
    world.settle()
    world.network.asked.clear()
    world.network.cut_off = set()
    world.settle(3)

    assert world.network.asked == []
    assert ends_at(world, TopicPartition("rides", 1)) == []


def test_an_end_that_waits_its_turn_is_not_sent_when_its_coordinator_has_stopped(
    world: TwoBrokers,
) -> None:
    first = producer_at(world)
    second = Producer(
        world,  # type: ignore[arg-type]
        next(
            one for one in map("shop-{}".format, range(100)) if world.coordinator(one) is world.one
        ),
    )
    for producer in (first, second):
        producer.write("rides", 1)
    world.network.gate = asyncio.Event()
    for producer in (first, second):
        assert producer.end(commit=True) == 0
        world.settle()
    for _, runtime in world.one.broker.transactions.runtimes:
        world.run(call(runtime.stop))
    world.network.gate.set()
    world.settle(3)

    assert len(world.network.bodies(Api.WRITE_TXN_MARKERS)) == 1
    assert [one.producer_id for one in ends_at(world, TopicPartition("rides", 1))] == [first.id]


def test_a_broker_that_does_not_lead_the_partition_says_so(world: TwoBrokers) -> None:
    marker = {
        "producer_id": 4_000,
        "producer_epoch": 3,
        "coordinator_epoch": 0,
        "transaction_result": True,
        "topics": [
            {"name": "rides", "partition_indexes": [0, 1]},
            {"name": "__consumer_offsets", "partition_indexes": [0, 1]},
        ],
    }
    reply = world.one.ask(Api.WRITE_TXN_MARKERS, 2, markers=[marker])
    assert {
        (topic.name, one.partition_index): one.error_code
        for topic in reply.markers[0].topics
        for one in topic.partitions
    } == {
        ("rides", 0): 0,
        ("rides", 1): NOT_LEADER,
        ("__consumer_offsets", 0): NOT_LEADER,
        ("__consumer_offsets", 1): 0,
    }


@both_protocols
@either_way
def test_the_next_coordinator_writes_the_missing_ends_with_its_own_epoch(
    world: TwoBrokers, speaks: dict[str, int], is_commit: bool
) -> None:
    producer = producer_at(world, speaks)
    before = coordinator_epoch(world, producer)
    producer.write("rides", 0, b"v")
    producer.write("rides", 1, b"v")
    world.network.cut_off = {TWO}
    assert producer.end(commit=is_commit) == 0
    world.settle()
    restart(world.one, crash=True)
    world.network.cut_off = set()
    world.settle(3)

    assert state(world, producer) == ("CompleteCommit" if is_commit else "CompleteAbort")
    (marker,) = ends_at(world, TopicPartition("rides", 1))
    assert marker.is_commit is is_commit
    assert marker.coordinator_epoch == coordinator_epoch(world, producer) > before
    assert read(world.two, "rides", 1) == ([b"v"] if is_commit else [])


def test_a_group_coordinator_that_loads_is_asked_again(world: TwoBrokers) -> None:
    producer = producer_at(world)
    group = world.group_id(at=world.two)
    producer.write_offsets(group, ("rides", 0, 7))
    number = world.two.broker.groups.runtimes.partition_of(group)
    runtime = world.two.broker.groups.runtimes._runtimes.pop(number)
    end(world, producer, commit=True)
    assert state(world, producer) == "PrepareCommit"

    world.two.broker.groups.runtimes._runtimes[number] = runtime
    world.settle(3)
    assert state(world, producer) == "CompleteCommit"
    assert fetch_offsets(world.two, group, "rides", stable=True) == (0, 7)


def test_a_new_leader_is_tried_again_soon_however_long_nobody_led() -> None:
    """1. Nobody leads, and many tries are in vain.   2. A broker is elected, and does not know it at the first try."""
    leaders: dict[TopicPartition, BrokerId | None] = {FIRST: None}
    waited: list[int] = []

    def refuse(*_: object, **__: object) -> None:
        raise NotLeader("as the test wants it")

    writer: Any = SimpleNamespace(
        remote=SimpleNamespace(leader_of=leaders.get, me=BrokerId(1)),
        append=refuse,
        retry_later=lambda _, *, tries: waited.append(tries),
    )
    marking = _Marking(
        writer,
        EndTransactionMarker(producer_id=1, producer_epoch=1, coordinator_epoch=0, is_commit=True),
        (FIRST,),
        needs_newer_epoch=False,
        on_written=lambda: None,
        is_wanted=lambda: True,
    )
    for _ in range(6):
        marking.run_round()
    leaders[FIRST] = BrokerId(1)
    for _ in range(2):
        marking.run_round()
    assert waited == [1, 2, 3, 4, 5, 6, 1, 2]
