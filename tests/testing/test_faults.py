"""Faults that a test orders, as clients see them."""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Producer

from respool.testing import Broker, UnknownFault
from testing.riding import WAIT_S, consumer, offsets_of, producer, send, values_in


def idempotent(broker: Broker) -> Producer:
    return producer(broker, **{"enable.idempotence": True, "retry.backoff.ms": 10})


def test_a_lost_reply_makes_a_plain_producer_write_twice(broker: Broker) -> None:
    broker.create_topic("rides")
    with broker.faults.lose_replies("Produce", topic="rides") as fault:
        careless = producer(broker, **{"acks": "all", "retries": 5, "retry.backoff.ms": 10})
        assert send(careless, "rides", "one") == [None]
        assert fault.struck == 1
    assert values_in(broker, "rides") == ["one", "one"]


def test_a_lost_reply_does_not_make_an_idempotent_producer_write_twice(broker: Broker) -> None:
    broker.create_topic("rides")
    with broker.faults.lose_replies("Produce", topic="rides", times=2) as fault:
        assert send(idempotent(broker), "rides", "one", "two") == [None, None]
        assert fault.struck == 2
    assert values_in(broker, "rides") == ["one", "two"]


def test_an_error_is_answered_a_number_of_times_and_nothing_is_written(broker: Broker) -> None:
    broker.create_topic("rides")
    fault = broker.faults.answer_with_error("NOT_LEADER_OR_FOLLOWER", topic="rides", times=3)
    assert send(idempotent(broker), "rides", "one") == [None]
    assert fault.struck == 3
    assert values_in(broker, "rides") == ["one"]


def test_an_error_that_cannot_be_retried_reaches_the_producer() -> None:
    with Broker(topics={"rides": 1}) as broker:
        broker.faults.answer_with_error("TOPIC_AUTHORIZATION_FAILED")
        [outcome] = send(producer(broker), "rides", "one")
        assert "TOPIC_AUTHORIZATION_FAILED" in str(outcome)
        assert send(producer(broker), "rides", "two") == [None]
        assert values_in(broker, "rides") == ["two"]


def test_a_held_reply_comes_when_the_fault_is_cleared() -> None:
    with Broker(topics={"rides": 1, "fares": 1}) as broker, ThreadPoolExecutor() as others:
        fault = broker.faults.delay_replies(topic="rides")
        waiting = others.submit(send, producer(broker), "rides", "one")
        wait_until(lambda: fault.struck == 1)
        # The message is in the log, only its sender does not know; other topics are not held back.
        assert offsets_of(broker, "rides") == (0, 1)
        assert send(producer(broker), "fares", "two") == [None]
        assert not waiting.done()
        fault.clear()
        assert waiting.result(WAIT_S) == [None]


def test_a_late_reply_is_late_by_the_brokers_clock() -> None:
    with Broker(topics={"rides": 1}) as broker, ThreadPoolExecutor() as others:
        fault = broker.faults.delay_replies(seconds=10_000, client_id="late")
        assert send(producer(broker), "rides", "one") == [None]
        waiting = others.submit(send, producer(broker, **{"client.id": "late"}), "rides", "two")
        wait_until(lambda: fault.struck == 1)
        assert not waiting.done()
        broker.clock.advance(seconds=10_001)
        assert waiting.result(WAIT_S) == [None]


def test_a_producer_gives_up_on_a_reply_that_never_comes() -> None:
    with Broker(topics={"rides": 1}) as broker:
        with broker.faults.delay_replies():
            hasty = producer(broker, **{"message.timeout.ms": 300, "retries": 0})
            [outcome] = send(hasty, "rides", "one")
        assert "_MSG_TIMED_OUT" in str(outcome)


def test_connections_of_one_client_are_dropped_and_of_others_not(broker: Broker) -> None:
    broker.create_topic("rides")
    one, other = producer(broker, **{"client.id": "one"}), producer(broker, **{"client.id": "two"})
    send(one, "rides", "1")
    send(other, "rides", "2")
    assert broker.faults.drop_connections("nobody") == 0
    dropped = broker.faults.drop_connections("one")
    assert 0 < dropped < dropped + broker.faults.drop_connections()
    assert send(one, "rides", "3") == [None]


def test_refused_connections_are_refused_until_it_is_cleared(broker: Broker) -> None:
    with socket.create_connection(("127.0.0.1", broker.port), timeout=5) as staying:
        with broker.faults.refuse_connections():
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", broker.port), timeout=5)
            broker.restart()
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", broker.port), timeout=5)
        assert staying.recv(1) == b""
    socket.create_connection(("127.0.0.1", broker.port), timeout=5).close()


def test_a_full_disk_refuses_messages_and_keeps_those_that_are_there(broker: Broker) -> None:
    broker.create_topic("rides")
    send(producer(broker), "rides", "one")
    with broker.faults.fill_disk():
        hasty = producer(broker, **{"message.timeout.ms": 500, "retry.backoff.ms": 50})
        [outcome] = send(hasty, "rides", "two")
        assert outcome is not None
        assert values_in(broker, "rides") == ["one"]
    assert send(producer(broker), "rides", "three") == [None]
    assert values_in(broker, "rides") == ["one", "three"]


def test_a_lost_commit_is_one_that_was_made() -> None:
    with Broker(topics={"rides": 1}) as broker:
        send(producer(broker), "rides", "one")
        member = consumer(broker)
        member.subscribe(["rides"])
        message = member.poll(WAIT_S)
        with broker.faults.lose_replies("OffsetCommit", topic="rides") as fault:
            member.commit(message, asynchronous=False)
            assert fault.struck == 1
        assert member.committed(member.assignment(), WAIT_S)[0].offset == 1
        member.close()


def test_faults_that_cannot_be_are_refused(broker: Broker) -> None:
    with pytest.raises(UnknownFault, match=r"there is no API 'Produse'; there are .*Produce"):
        broker.faults.lose_replies("Produse")
    with pytest.raises(UnknownFault, match="'NO_SUCH' is not an error of Kafka;"):
        broker.faults.answer_with_error("NO_SUCH")
    with pytest.raises(UnknownFault, match="leave topic out"):
        broker.faults.delay_replies("Fetch", topic="rides")


def test_all_faults_are_cleared_at_once(broker: Broker) -> None:
    broker.create_topic("rides")
    broker.faults.fill_disk()
    broker.faults.refuse_connections()
    broker.faults.delay_replies("ApiVersions")
    broker.faults.clear()
    assert send(producer(broker), "rides", "one") == [None]


def test_a_stop_does_not_wait_for_replies_that_are_held() -> None:
    with Broker(topics={"rides": 1}) as broker, ThreadPoolExecutor() as others:
        fault = broker.faults.delay_replies()
        waiting = others.submit(send, producer(broker), "rides", "one")
        wait_until(lambda: fault.struck == 1)
        broker.restart()
        # Held replies left before the stop, or else the client asks again and is held again.
        broker.faults.clear()
        assert waiting.result(WAIT_S) == [None]


def wait_until(condition: "object") -> None:
    pause = threading.Event()
    for _ in range(400):
        if condition():  # type: ignore[operator]
            return
        pause.wait(0.05)
    pytest.fail("it did not come to it in time")
