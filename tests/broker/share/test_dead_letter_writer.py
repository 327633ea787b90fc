"""Dead letters of share groups: what they say, and that no record is gone before its letter is there."""

import asyncio
from typing import Any

import pytest

from broker.group_client import restart, start_with_groups
from broker.handlers.share_groups.share_client import ShareMember
from broker.running_broker import RunningBroker, StartBroker
from respool.broker.share import dead_letter_writer
from respool.broker.share.dead_letter_batch import DELIVERED_TOO_OFTEN, REJECTED, letters
from respool.coordination.share.share_machine import DyingRecords
from respool.log.partition_log import ReadSpec
from respool.model.ids import Offset, TopicPartition
from respool.model.retry.failure_headers import read_failure
from respool.pacing.backoff import Backoff
from respool.records.batch import RecordBatch, read_header
from respool.records.record import Record, read_records

ACCEPT, RELEASE, REJECT = 1, 2, 3
LETTERS = "dlq.orders"


@pytest.fixture
def broker(start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch) -> RunningBroker:
    monkeypatch.setattr(dead_letter_writer, "RETRY_S", Backoff(first=0.001, longest=0.001))
    broker = start_with_groups(start_broker, share_coordinator_state_topic_partitions=2)
    broker.create_topic("orders")
    return broker


def configure(broker: RunningBroker, **settings: str) -> None:
    broker.set_for_group(
        "billing",
        {
            "share.auto.offset.reset": "earliest",
            "share.delivery.count.limit": "2",
            "errors.deadletterqueue.topic.name": LETTERS,
        }
        | settings,
    )


def create_letters_topic(broker: RunningBroker) -> None:
    broker.create_topic(LETTERS, errors_deadletterqueue_group_enable="true")


def delete_letters_topic(broker: RunningBroker) -> None:
    broker.run(broker.broker.topics.delete(LETTERS))


def member_of(broker: RunningBroker, name: str = "one") -> ShareMember:
    member = ShareMember(broker, name=name)
    member.join()
    return member


def written(broker: RunningBroker) -> list[Record]:
    log = broker.broker.partitions.find(LETTERS, 0).log
    data = bytes(log.read(ReadSpec(Offset(0), log.log_end, 2**20)))
    found: list[Record] = []
    while data:
        header = read_header(data)
        found += read_records(RecordBatch(header, data[: header.size]), limit=2**20)
        data = data[header.size :]
    return found


def wait_until_dead(broker: RunningBroker) -> None:
    async def wait() -> None:
        while any(share.is_loaded and share.machine().dying for share in broker.broker.shares):
            await asyncio.sleep(0)

    broker.run(wait())


def let_run(broker: RunningBroker) -> None:
    async def turns() -> None:
        for _ in range(50):
            await asyncio.sleep(0)

    broker.run(turns())


def test_rejected_and_exhausted_records_become_letters_with_kafkas_headers(
    broker: RunningBroker,
) -> None:
    create_letters_topic(broker)
    configure(broker)
    broker.produce("orders", values=(b"a", b"b", b"c"))
    one = member_of(broker)
    assert one.take() == [(0, 2, 1)]
    # The first is rejected, the second comes back until it has been delivered twice.
    assert one.take((0, 0, REJECT), (1, 1, RELEASE), (2, 2, ACCEPT)) == [(1, 1, 2)]
    assert one.take((1, 1, RELEASE)) == []
    wait_until_dead(broker)
    found = written(broker)
    assert [record.value for record in found] == [b"a", b"b"]
    told = [read_failure(record.headers) for record in found]
    assert [(one.topic, one.partition, one.offset, one.group) for one in told] == [
        ("orders", 0, 0, "billing"),
        ("orders", 0, 1, "billing"),
    ]
    assert [(one.deliveries, one.error_text) for one in told] == [
        (1, REJECTED),
        (2, DELIVERED_TOO_OFTEN),
    ]
    share = next(iter(broker.broker.shares))
    assert share.machine().start == 3


def test_a_record_is_held_until_its_letter_can_be_written(broker: RunningBroker) -> None:
    create_letters_topic(broker)
    configure(broker)
    delete_letters_topic(broker)
    broker.produce("orders", values=(b"a",))
    one = member_of(broker)
    one.take()
    assert one.take((0, 0, REJECT)) == []
    let_run(broker)
    share = next(iter(broker.broker.shares))
    assert (share.machine().start, share.machine().dying) == (0, 1)
    create_letters_topic(broker)
    wait_until_dead(broker)
    assert [record.value for record in written(broker)] == [b"a"]


def test_after_a_crash_the_letter_is_written(broker: RunningBroker) -> None:
    create_letters_topic(broker)
    configure(broker)
    delete_letters_topic(broker)
    broker.produce("orders", values=(b"a",))
    one = member_of(broker)
    one.take()
    one.take((0, 0, REJECT))
    restart(broker, crash=True)
    create_letters_topic(broker)
    again = member_of(broker, "again")
    assert again.take() == []
    wait_until_dead(broker)
    assert [record.value for record in written(broker)] == [b"a"]
    assert next(iter(broker.broker.shares)).machine().start == 1


def test_a_topic_without_its_flag_gets_no_letters(broker: RunningBroker) -> None:
    create_letters_topic(broker)
    configure(broker)
    delete_letters_topic(broker)
    broker.create_topic(LETTERS)
    broker.produce("orders", values=(b"a",))
    one = member_of(broker)
    one.take()
    one.take((0, 0, REJECT))
    let_run(broker)
    assert broker.broker.partitions.find(LETTERS, 0).log.log_end == 0
    assert next(iter(broker.broker.shares)).machine().dying == 1


def record_of(key: bytes, value: bytes) -> Record:
    return Record(offset=Offset(4), timestamp=7, key=key, value=value, headers=(("own", b"1"),))


def build(record: Record | None, **options: Any) -> Any:
    (letter,) = letters(
        DyingRecords(first=4, last=4, delivery_count=3, is_rejected=True),
        {} if record is None else {4: record},
        source=TopicPartition("orders", 1),
        group="billing",
        now_ms=99,
        **{"copies_record": True, "bytes_max": 10_000} | options,
    )
    return letter, read_failure(letter.headers)


def test_a_letter_leaves_out_what_does_not_fit() -> None:
    record = record_of(b"key", b"v" * 20_000)
    letter, failure = build(record)
    assert (letter.key, letter.value, failure.truncated) == (b"key", None, "value")
    assert letter.headers[0] == ("own", b"1")
    letter, failure = build(record_of(b"k" * 20_000, b"v"))
    assert (letter.key, letter.value, failure.truncated) == (None, None, "record")


def test_a_letter_of_a_record_that_is_gone_says_which_it_was() -> None:
    letter, failure = build(None)
    assert (letter.key, letter.value, failure.truncated, failure.offset) == (
        None,
        None,
        "record",
        4,
    )


def test_a_group_may_want_only_to_know_where_the_record_is() -> None:
    record = record_of(b"key", b"v")
    letter, failure = build(record, copies_record=False)
    assert (letter.key, letter.value) == (None, None)
    assert all(name != "own" for name, _ in letter.headers)
    assert (failure.topic, failure.partition, failure.truncated) == ("orders", 1, "")
