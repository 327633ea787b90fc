"""Crashes that a test orders: what was acknowledged after a sync is there, and what was not synced is gone."""

import pytest

from respool.testing import Broker
from testing.riding import offsets_of, producer, send, values_in


def test_what_was_synced_survives_a_crash(broker: Broker) -> None:
    broker.create_topic("rides")
    careful = producer(broker, acks="all")
    assert send(careful, "rides", *map(str, range(20))) == [None] * 20

    assert broker.crash() == 0
    assert not broker.is_running
    broker.start()

    assert values_in(broker, "rides") == [str(one) for one in range(20)]
    assert send(careful, "rides", "after") == [None]


def test_what_was_only_acknowledged_and_not_synced_is_lost(broker: Broker) -> None:
    broker.create_topic("rides", respool_flush="os")
    client = producer(broker)
    assert send(client, "rides", "one", "two") == [None, None]
    broker.restart()
    assert send(client, "rides", "three", "four") == [None, None]
    assert offsets_of(broker, "rides") == (0, 4)

    assert broker.crash() > 0
    broker.start()

    # A clean stop had synced the first two.
    assert values_in(broker, "rides") == ["one", "two"]
    assert send(client, "rides", "five") == [None]
    assert values_in(broker, "rides") == ["one", "two", "five"]


def test_a_killed_process_loses_nothing_it_wrote() -> None:
    with Broker(topics={"rides": {"respool.flush": "os"}}) as broker:
        send(producer(broker), "rides", "one", "two")
        assert broker.crash(lose_unsynced=False) == 0
        broker.start()
        assert values_in(broker, "rides") == ["one", "two"]


def test_interval_syncs_come_with_the_time() -> None:
    interval = {"respool.flush": "interval", "respool.flush.interval.ms": 3_600_000}
    with Broker(topics={"rides": interval}) as broker:
        client = producer(broker)
        send(client, "rides", "one")
        broker.clock.advance(hours=2)
        send(client, "rides", "two")
        assert broker.crash() > 0
        broker.start()
        assert values_in(broker, "rides") == ["one"]


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_a_crash_while_clients_write_keeps_what_they_were_told(mode: str) -> None:
    with Broker(topics={"rides": 1}, mode=mode) as broker:  # type: ignore[arg-type]
        client = producer(broker, **{"enable.idempotence": True, "retry.backoff.ms": 10})
        acknowledged: list[str] = []

        def on_delivery(error: object, message: object) -> None:
            if error is None:
                acknowledged.append(message.value().decode())  # type: ignore[attr-defined]

        sent = 0
        for _ in range(3):
            for _ in range(300):
                client.produce("rides", str(sent), on_delivery=on_delivery)
                sent += 1
                client.poll(0)
            broker.crash()
            known = set(acknowledged)
            broker.start()
            assert known <= set(values_in(broker, "rides"))
        assert client.flush(30) == 0
        # Each once, and in order, though the broker went away in between.
        assert values_in(broker, "rides") == [str(one) for one in range(sent)]
        assert acknowledged == [str(one) for one in range(sent)]


def test_groups_and_their_offsets_survive_a_crash(broker: Broker) -> None:
    from testing.riding import WAIT_S, consumer

    broker.create_topic("rides")
    send(producer(broker), "rides", "one", "two")
    member = consumer(broker)
    member.subscribe(["rides"])
    first = member.poll(WAIT_S)
    assert first is not None
    member.commit(first, asynchronous=False)
    partitions = member.assignment()

    broker.crash()
    broker.start()

    member.close()
    later = consumer(broker)
    assert later.committed(partitions, WAIT_S)[0].offset == 1
    later.close()
