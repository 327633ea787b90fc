"""The broker's time, moved: what waits for it happens at once, in a thread and in a child alike."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from respool.testing import Broker
from testing.riding import WAIT_S, consumer, offsets_of, producer, send, values_in

DAY_MS = 24 * 3600 * 1000


def test_time_moves_by_what_it_is_told_and_never_back(broker: Broker) -> None:
    before = broker.clock.now_ms
    broker.clock.advance(days=1, hours=2)
    broker.clock.advance(timedelta(minutes=3), seconds=4)
    moved = broker.clock.now_ms - before
    wanted = (26 * 3600 + 184) * 1000
    assert wanted <= moved < wanted + 60_000
    with pytest.raises(ValueError, match="time does not go back"):
        broker.clock.advance(seconds=-1)
    assert broker.clock.now > datetime.now(UTC) + timedelta(days=1)


@pytest.mark.parametrize("by", ["7d", 7])
def test_how_to_say_how_much_time_is_told(broker: Broker, by: object) -> None:
    with pytest.raises(TypeError, match=r"advance\(days=7\)"):
        broker.clock.advance(by)  # type: ignore[arg-type]


def test_what_retention_deletes_is_gone_when_the_time_has_moved(broker: Broker) -> None:
    broker.create_topic("rides", retention_ms=7 * DAY_MS)
    client = producer(broker)
    send(client, "rides", "one", "two")
    broker.clock.advance(days=6)
    assert offsets_of(broker, "rides") == (0, 2)

    broker.clock.advance(days=2)

    assert offsets_of(broker, "rides") == (2, 2)
    # The client's clock was not moved: its messages would be eight days old.
    send(client, "rides", "three", timestamp_ms=broker.clock.now_ms)
    broker.clock.advance(days=1)
    assert values_in(broker, "rides") == ["three"]


def test_files_of_what_was_deleted_go_a_minute_later() -> None:
    with Broker(topics={"rides": {"retention.ms": DAY_MS}}) as broker:
        send(producer(broker), "rides", "one")
        first = Path(broker.data) / "rides-0" / f"{0:020}.log"
        broker.clock.advance(days=2)
        assert not first.exists()
        assert first.with_name(first.name + ".deleted").exists()
        broker.clock.advance(minutes=2)
        assert not first.with_name(first.name + ".deleted").exists()


def test_a_silent_member_of_a_group_loses_its_place(broker: Broker) -> None:
    broker.create_topic("rides")
    send(producer(broker), "rides", "one")
    member = consumer(broker, **{"session.timeout.ms": 30_000, "heartbeat.interval.ms": 10_000})
    member.subscribe(["rides"])
    message = member.poll(WAIT_S)
    assert message is not None
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})

    def members() -> int:
        described = admin.describe_consumer_groups(["riders"])["riders"].result(WAIT_S)
        return len(described.members)

    assert members() == 1
    broker.clock.advance(seconds=31)
    # The member itself has slept less than a heartbeat: it does not know yet.
    assert members() == 0
    with pytest.raises(KafkaException, match=r"UNKNOWN_MEMBER_ID|ILLEGAL_GENERATION"):
        member.commit(message, asynchronous=False)
    member.close()


def test_a_transaction_that_nobody_ends_is_aborted(broker: Broker) -> None:
    broker.create_topic("rides")
    writer = producer(broker, **{"transactional.id": "fares", "transaction.timeout.ms": 60_000})
    writer.init_transactions(WAIT_S)
    writer.begin_transaction()
    assert send(writer, "rides", "one") == [None]
    committed = {"isolation.level": "read_committed"}
    reader = consumer(broker, **committed)
    reader.subscribe(["rides"])
    assert reader.poll(1) is None

    broker.clock.advance(seconds=61)

    send(producer(broker), "rides", "two")
    message = reader.poll(WAIT_S)
    assert message is not None
    assert message.value() == b"two"
    reader.close()
    with pytest.raises(KafkaException):
        writer.commit_transaction(WAIT_S)


def test_offsets_of_a_forgotten_group_are_forgotten() -> None:
    with Broker(topics={"rides": 1}) as broker:
        send(producer(broker), "rides", "one")
        member = consumer(broker)
        member.subscribe(["rides"])
        message = member.poll(WAIT_S)
        assert message is not None
        member.commit(message, asynchronous=False)
        assert member.committed(member.assignment(), WAIT_S)[0].offset == 1
        partitions = member.assignment()
        member.close()

        broker.clock.advance(days=8)

        later = consumer(broker)
        assert later.committed(partitions, WAIT_S)[0].offset < 0
        later.close()


def test_connections_outlive_the_time_that_is_moved(broker: Broker) -> None:
    broker.create_topic("rides")
    client = producer(broker)
    send(client, "rides", "one")
    broker.clock.advance(weeks=52)
    assert broker.faults.drop_connections() > 0


def test_the_time_that_was_moved_is_kept_over_restarts(broker: Broker) -> None:
    broker.clock.advance(days=5)
    broker.restart()
    broker.crash()
    broker.start()
    assert broker.clock.now > datetime.now(UTC) + timedelta(days=4)


def test_a_topic_that_stamps_messages_itself_uses_the_moved_time() -> None:
    topic = {"message.timestamp.type": "LogAppendTime", "retention.ms": DAY_MS}
    with Broker(topics={"rides": topic}) as broker:
        broker.clock.advance(days=3)
        send(producer(broker), "rides", "one")
        broker.clock.advance(hours=23)
        assert values_in(broker, "rides") == ["one"]
