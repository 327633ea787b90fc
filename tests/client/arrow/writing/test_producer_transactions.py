"""Transactions of tables: all visible at once or never, also when another process ends them."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Literal, TypeAlias

import pyarrow as pa
import pytest

import respool
from client.fake_broker import LOSE_ANSWER, TOPIC, FakeBroker, values_of
from respool import ArrowProducer, PreparedTransaction, WriteFailed
from respool.client.arrow.errors import (
    BufferFull,
    TransactionFenced,
    TransactionLost,
    TransactionUncertain,
    WrongState,
)
from respool.client.arrow.prepared import Ended
from respool.client.kafka.errors import BadArgument, BrokerRefused
from respool.wire.api_table import Api
from support.broker_process import BrokerProcess
from support.confluent_client import consumer
from support.topics import Topics
from support.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("arrow-transactions")]

Isolation: TypeAlias = Literal["read_committed", "read_uncommitted"]
LOADING, MOVED, CONCURRENT, FENCED, INVALID_STATE, TOO_LARGE = 14, 16, 51, 90, 48, 10


def numbers(*values: int) -> pa.Table:
    return pa.table({"value": [b"%d" % value for value in values]})


def seen(
    broker: BrokerProcess, topic: str, *, isolation: Isolation = "read_committed"
) -> list[int]:
    found = respool.read_table(topic, bootstrap=broker.address, isolation=isolation)
    return sorted(int(value) for value in found["value"].to_pylist())


def wait_for(broker: BrokerProcess, topic: str, values: list[int]) -> None:
    """An end is decided before its markers are in the partitions; readers see it a moment later."""
    wait_until(lambda: seen(broker, topic) == values, f"{topic} has {values}")


# Against a real broker.


def test_a_transaction_is_visible_when_it_is_committed_and_never_when_it_is_aborted(
    broker: BrokerProcess, topics: Topics
) -> None:
    topic = topics.new("committed", partitions=2)
    with ArrowProducer(broker.address, transactional_id=topic) as producer:
        producer.begin()
        producer.write(numbers(1, 2), topic)
        producer.write(numbers(3), topic)
        producer.flush()
        assert seen(broker, topic) == []
        assert producer.commit().rows_in == 0, "they were flushed before"
        wait_for(broker, topic, [1, 2, 3])
        producer.begin()
        producer.write(numbers(4), topic)
        producer.flush()
        producer.abort()
        with producer.transaction():
            producer.write(numbers(5), topic)
        wait_for(broker, topic, [1, 2, 3, 5])
    assert seen(broker, topic, isolation="read_uncommitted") == [1, 2, 3, 4, 5]


def test_other_clients_see_only_what_was_committed(broker: BrokerProcess, topics: Topics) -> None:
    topic = topics.new("others")
    with ArrowProducer(broker.address, transactional_id=topic) as producer:
        for number in range(6):
            producer.begin()
            producer.write(numbers(number), topic)
            producer.flush()
            producer.commit() if number % 2 else producer.abort()
    reader = consumer(broker.address, isolation_level="read_committed", enable_partition_eof=False)
    try:
        from confluent_kafka import TopicPartition

        reader.assign([TopicPartition(topic, 0, 0)])
        found = [int(reader.poll(20).value()) for _ in range(3)]
    finally:
        reader.close()
    assert found == [1, 3, 5]


def test_an_exception_aborts(broker: BrokerProcess, topics: Topics) -> None:
    topic = topics.new("exception")
    with ArrowProducer(broker.address, transactional_id=topic) as producer:
        with pytest.raises(LookupError, match="on purpose"):
            _write_and_raise(producer, topic)
        with producer.transaction():
            producer.write(numbers(2), topic)
        wait_for(broker, topic, [2])


def _write_and_raise(producer: ArrowProducer, topic: str) -> None:
    with producer.transaction():
        producer.write(numbers(1), topic)
        producer.flush()
        raise LookupError("on purpose")


def test_closing_aborts_what_is_open(broker: BrokerProcess, topics: Topics) -> None:
    topic = topics.new("closing")
    with ArrowProducer(broker.address, transactional_id=topic) as producer:
        producer.begin()
        producer.write(numbers(1), topic)
        producer.flush()
    respool.write_table(numbers(2), topic, bootstrap=broker.address)
    # It does not keep readers waiting.
    wait_for(broker, topic, [2])


def test_a_transaction_without_rows_commits(broker: BrokerProcess) -> None:
    with ArrowProducer(broker.address, transactional_id="nothing") as producer:
        with producer.transaction():
            pass
        producer.begin()
        producer.abort()


def test_a_newer_producer_of_the_same_name_fences_the_older(
    broker: BrokerProcess, topics: Topics
) -> None:
    topic = topics.new("fenced")
    older = ArrowProducer(broker.address, transactional_id=topic)
    older.begin()
    older.write(numbers(1), topic)
    older.flush()
    with ArrowProducer(broker.address, transactional_id=topic) as newer:
        newer.init()
        with pytest.raises(TransactionFenced):
            older.commit()
        with pytest.raises(TransactionFenced):
            older.begin()
        with newer.transaction():
            newer.write(numbers(2), topic)
    older.close()
    wait_for(broker, topic, [2])


ENDING = """
import sys
from respool import PreparedTransaction
transaction = PreparedTransaction.from_json(sys.stdin.read())
print(getattr(transaction, sys.argv[2])(sys.argv[1]).was_before)
"""


def end_elsewhere(prepared: PreparedTransaction, how: str, broker: BrokerProcess) -> bool:
    done = subprocess.run(
        [sys.executable, "-c", ENDING, broker.address, how],
        input=prepared.to_json(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return bool(json.loads(done.stdout.strip().lower()))


def test_another_process_commits_what_was_prepared_and_may_do_so_again(
    broker: BrokerProcess, topics: Topics
) -> None:
    topic = topics.new("prepared")
    with ArrowProducer(broker.address, transactional_id=topic) as producer:
        producer.begin()
        producer.write(numbers(1), topic)
        prepared, result = producer.prepare()
        assert result.rows_in == 1
        with pytest.raises(WrongState, match="init"):
            producer.write(numbers(2), topic)
    # Its writer is gone, and it is still there.
    assert seen(broker, topic) == []
    assert end_elsewhere(prepared, "commit", broker) is False
    assert end_elsewhere(prepared, "commit", broker) is True
    wait_for(broker, topic, [1])
    with pytest.raises(TransactionLost, match="was committed before"):
        prepared.abort(broker.address)


def test_what_was_prepared_can_be_aborted_and_aborted_again(
    broker: BrokerProcess, topics: Topics
) -> None:
    topic = topics.new("taken-back")
    with ArrowProducer(broker.address, transactional_id=topic) as producer:
        producer.begin()
        producer.write(numbers(1), topic)
        prepared, _ = producer.prepare()
        assert prepared.abort(broker.address) == Ended(is_commit=False, was_before=False)
        assert prepared.abort(broker.address) == Ended(is_commit=False, was_before=True)
        with pytest.raises(TransactionLost, match="was aborted before"):
            prepared.commit(broker.address)
        producer.init()
        with producer.transaction():
            producer.write(numbers(2), topic)
    wait_for(broker, topic, [2])
    with pytest.raises(TransactionFenced, match="used again"):
        prepared.commit(broker.address)


def test_nobody_can_commit_what_a_newer_producer_has_aborted(
    broker: BrokerProcess, topics: Topics
) -> None:
    topic = topics.new("overtaken")
    with ArrowProducer(broker.address, transactional_id=topic) as producer:
        producer.begin()
        producer.write(numbers(1), topic)
        prepared, _ = producer.prepare()
    with ArrowProducer(broker.address, transactional_id=topic) as newer:
        newer.init()
    with pytest.raises(TransactionFenced):
        prepared.commit(broker.address)
    assert seen(broker, topic) == []


def test_offsets_are_committed_with_the_transaction_or_not_at_all(
    broker: BrokerProcess, topics: Topics
) -> None:
    source, target, group = topics.new("source"), topics.new("target"), "transformers"
    with ArrowProducer(broker.address, transactional_id=target) as producer:
        producer.begin()
        producer.write(numbers(1), target)
        producer.send_offsets(group, {(source, 0): 7})
        producer.abort()
        assert committed(broker, group, source) < 0
        with producer.transaction():
            producer.write(numbers(2), target)
            producer.send_offsets(group, {(source, 0): 9})
        wait_until(lambda: committed(broker, group, source) == 9, "the offset is committed")
        wait_for(broker, target, [2])


def committed(broker: BrokerProcess, group: str, topic: str) -> int:
    from confluent_kafka import Consumer, TopicPartition

    reader = Consumer({"bootstrap.servers": broker.address, "group.id": group, "log_level": 0})
    try:
        (found,) = reader.committed([TopicPartition(topic, 0)], timeout=20)
    finally:
        reader.close()
    return int(found.offset)


# Against a broker that makes trouble.


@pytest.fixture
def fake() -> Iterator[FakeBroker]:
    with FakeBroker() as running:
        yield running


def producer_of(fake: FakeBroker, *, delivery_timeout_ms: int = 20_000) -> ArrowProducer:
    return ArrowProducer(
        fake.address, transactional_id="job", linger_ms=0, delivery_timeout_ms=delivery_timeout_ms
    )


def test_what_passes_is_asked_for_again(fake: FakeBroker) -> None:
    fake.refuse(Api.FIND_COORDINATOR, 15)
    fake.refuse(Api.INIT_PRODUCER_ID, CONCURRENT, LOADING)
    fake.refuse(Api.TXN_OFFSET_COMMIT, LOADING)
    fake.refuse(Api.END_TXN, CONCURRENT, MOVED)
    fake.script(CONCURRENT)
    with producer_of(fake) as producer, producer.transaction():
        producer.write(numbers(1), TOPIC)
        producer.send_offsets("group", {("source", 0): 1})
    assert values_of(fake.partitions[0].records) == [1]
    assert len(fake.asked_for(Api.END_TXN)) == 3
    # The coordinator was looked for again after it had moved.
    assert len(fake.asked_for(Api.FIND_COORDINATOR)) > 2


def test_each_transaction_has_an_epoch_of_its_own_and_sequences_from_zero(fake: FakeBroker) -> None:
    with producer_of(fake) as producer:
        for number in range(3):
            with producer.transaction():
                producer.write(numbers(number, number), TOPIC)
    assert [(one.producer_epoch, one.base_sequence) for one in fake.produced] == [
        (1, 0),
        (2, 0),
        (3, 0),
    ]
    assert all(one.is_transactional for one in fake.produced)
    assert fake.produce_versions == {12}
    assert not fake.asked_for(Api.ADD_PARTITIONS_TO_TXN)


def test_older_clusters_are_told_of_partitions_and_groups_first() -> None:
    with FakeBroker(partitions=2, transaction_level=0) as fake:
        fake.refuse(Api.ADD_PARTITIONS_TO_TXN, CONCURRENT)
        with producer_of(fake) as producer:
            with producer.transaction():
                table = pa.table({"value": ["a", "b"], "to": [0, 1]})
                producer.write(table, TOPIC, partition="to")
                producer.write(table, TOPIC, partition="to")
                producer.send_offsets("group", {("source", 0): 1})
            with producer.transaction():
                producer.write(table, TOPIC, partition="to")
            producer.begin()
            producer.write(table, TOPIC, partition="to")
            producer.flush()
            producer.abort()
        assert fake.produce_versions == {11}
        added = [
            one.v3_and_below_topics[0].partitions
            for one in fake.asked_for(Api.ADD_PARTITIONS_TO_TXN)
        ]
        assert added == [(0, 1), (0, 1), (0, 1), (0, 1)]
        assert len(fake.asked_for(Api.ADD_OFFSETS_TO_TXN)) == 1
        # The epoch is the next one after the abort only, and sequences go on over commits.
        assert len(fake.asked_for(Api.INIT_PRODUCER_ID)) == 2
        first = [one.base_sequence for one in fake.produced if one.producer_epoch == 1]
        assert sorted(first) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_failed_write_leaves_only_the_abort(fake: FakeBroker) -> None:
    fake.script(TOO_LARGE)
    with producer_of(fake) as producer:
        producer.begin()
        producer.write(numbers(1), TOPIC)
        with pytest.raises(WriteFailed):
            producer.commit()
        with pytest.raises(WrongState, match="abort"):
            producer.commit()
        with pytest.raises(WrongState, match="abort"):
            producer.write(numbers(2), TOPIC)
        producer.abort()
        with producer.transaction():
            producer.write(numbers(3), TOPIC)
    assert values_of(fake.partitions[0].records) == [3]
    assert [one.committed for one in fake.asked_for(Api.END_TXN)] == [False, True]


def test_a_lost_answer_to_a_write_is_asked_for_again_within_the_transaction(
    fake: FakeBroker,
) -> None:
    fake.script(LOSE_ANSWER)
    with producer_of(fake) as producer, producer.transaction():
        producer.write(numbers(1, 2), TOPIC)
    assert values_of(fake.partitions[0].records) == [1, 2]


def test_an_end_that_nobody_answers_can_be_repeated_by_anyone(fake: FakeBroker) -> None:
    with producer_of(fake, delivery_timeout_ms=300) as producer:
        producer.begin()
        producer.write(numbers(1), TOPIC)
        fake.refuse(Api.END_TXN, *[CONCURRENT] * 100)
        with pytest.raises(TransactionUncertain) as told:
            producer.commit()
        fake._scripts[Api.END_TXN].clear()
        assert told.value.transaction.commit(fake.address) == Ended(
            is_commit=True, was_before=False
        )
        assert told.value.transaction.commit(fake.address) == Ended(is_commit=True, was_before=True)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (FENCED, TransactionFenced),
        (47, TransactionFenced),
        (49, TransactionFenced),
        (INVALID_STATE, TransactionLost),
    ],
)
def test_a_commit_that_is_refused_says_why(
    fake: FakeBroker, code: int, error: type[Exception]
) -> None:
    fake.refuse(Api.END_TXN, code)
    with producer_of(fake) as producer:
        producer.begin()
        producer.write(numbers(1), TOPIC)
        with pytest.raises(error):
            producer.commit()


def test_offsets_that_are_refused_leave_only_the_abort(fake: FakeBroker) -> None:
    fake.refuse(Api.TXN_OFFSET_COMMIT, 22)
    with producer_of(fake) as producer:
        producer.begin()
        with pytest.raises(BrokerRefused, match="ILLEGAL_GENERATION"):
            producer.send_offsets("group", {("source", 0): 1}, member_id="m", generation_id=3)
        with pytest.raises(WrongState, match="abort"):
            producer.commit()
        producer.abort()
    (asked,) = fake.asked_for(Api.TXN_OFFSET_COMMIT)
    assert (asked.member_id, asked.generation_id) == ("m", 3)


def test_steps_out_of_turn_are_refused_with_what_comes_first(fake: FakeBroker) -> None:
    with producer_of(fake) as producer:
        for step in (producer.commit, producer.abort, producer.prepare):
            with pytest.raises(WrongState, match="init"):
                step()
        with pytest.raises(WrongState, match="begin"):
            producer.write(numbers(1), TOPIC)
        producer.begin()
        with pytest.raises(WrongState, match="commit"):
            producer.begin()
        with pytest.raises(WrongState, match="nothing was written"):
            producer.prepare()
    with ArrowProducer(fake.address) as plain, pytest.raises(BadArgument, match="transactional_id"):
        plain.begin()


def refuse_rows(_keys: pa.Array, values: pa.Array, _partitions: int) -> list[int]:
    if b"wrong" in values.to_pylist():
        raise ValueError("such rows go nowhere")
    return [0] * len(values)


def test_rows_that_never_left_leave_only_the_abort(
    fake: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each row is a piece, and the second one finds no partition.
    monkeypatch.setattr("respool.client.arrow.writing.arrow_producer.PIECE_BYTES", 1)
    with ArrowProducer(
        fake.address, transactional_id="job", linger_ms=0, partitioner=refuse_rows
    ) as producer:
        producer.begin()
        with pytest.raises(ValueError, match="nowhere"):
            producer.write(pa.table({"value": [b"1", b"wrong"]}), TOPIC)
        with pytest.raises(WriteFailed, match="1 are not in"):
            producer.commit()
        with pytest.raises(WrongState, match="abort"):
            producer.commit()
        producer.abort()
    assert [one.committed for one in fake.asked_for(Api.END_TXN)] == [False]


def test_a_commit_that_fails_for_whatever_reason_aborts(
    fake: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ctrl_c(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with producer_of(fake) as producer:
        monkeypatch.setattr(producer, "commit", ctrl_c)
        with pytest.raises(KeyboardInterrupt), producer.transaction():
            producer.write(numbers(1), TOPIC)
        assert not producer.in_transaction
    assert [one.committed for one in fake.asked_for(Api.END_TXN)] == [False]


def test_what_failed_while_it_lingered_does_not_fail_the_next_transaction(
    fake: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object, **__: object) -> None:
        raise BufferFull("no room")

    with ArrowProducer(fake.address, transactional_id="job", linger_ms=1) as producer:
        with monkeypatch.context() as patched:
            patched.setattr(producer._encoder, "encode_all", no_room)
            producer.begin()
            producer.write(numbers(1), TOPIC)
            wait_until(lambda: producer._accumulator._error is not None, "it failed unseen")
        producer.abort()
        with producer.transaction():
            producer.write(numbers(2), TOPIC)
    assert values_of(fake.partitions[0].records) == [2]
