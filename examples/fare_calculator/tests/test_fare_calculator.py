"""The fare calculator against a real broker, on good days and on bad ones."""

import pytest
from confluent_kafka import KafkaException
from fare_calculator import FARES, REJECTED, FareCalculator

from conftest import work


def test_a_ride_is_charged(calculator, ride, read):
    ride("r1", km=4, minutes=10)
    work(calculator, 1)
    assert read(FARES) == {"r1": ["1030"]}


def test_what_is_no_ride_is_put_aside_and_does_not_stop_the_others(calculator, ride, read):
    ride("r1", text="not even JSON")
    ride("r2", text='{"km": 3}')
    ride("r3", km=1, minutes=1)
    work(calculator, 3)
    assert read(REJECTED) == {"r1": ["not even JSON"], "r2": ['{"km": 3}']}
    assert read(FARES) == {"r3": ["400"]}


def test_an_answer_that_is_lost_charges_nobody_twice(broker, calculator, ride, read):
    """The classic: the fare was written, and the network broke before the service heard of it."""
    ride("r1", km=4, minutes=10)
    with broker.faults.lose_replies("Produce", topic=FARES) as fault:
        work(calculator, 1)
        assert fault.struck == 1
    assert read(FARES) == {"r1": ["1030"]}


def test_a_broker_that_is_not_itself_for_a_moment_is_asked_again(broker, calculator, ride, read):
    ride("r1", km=4, minutes=10)
    broker.faults.answer_with_error("NOT_LEADER_OR_FOLLOWER", topic=FARES, times=3)
    work(calculator, 1)
    assert read(FARES) == {"r1": ["1030"]}


def test_a_crash_of_the_broker_loses_no_fare_and_doubles_none(broker, calculator, ride, read):
    for number in range(50):
        ride(f"r{number}", km=1, minutes=number)
    work(calculator, 1)
    broker.crash()
    broker.start()
    for number in range(50, 60):
        ride(f"r{number}", km=1, minutes=number)
    while len(read(FARES)) < 60:
        calculator.step()
    assert read(FARES) == {f"r{number}": [str(370 + 30 * number)] for number in range(60)}


def test_a_ride_half_charged_is_charged_by_the_next_calculator(broker, ride, read, monkeypatch):
    """The service dies between reading a ride and committing its fare: the ride comes again."""
    ride("r1", km=4, minutes=10)
    first = FareCalculator(broker.bootstrap)
    with pytest.raises(RuntimeError), monkeypatch.context() as patched:
        patched.setattr("fare_calculator.fare_of", _dies)
        work(first, 1)
    assert read(FARES) == {}

    # The one that takes over need not wait for the first one's session: the time is ours.
    second = FareCalculator(broker.bootstrap)
    broker.clock.advance(minutes=1)
    work(second, 1)

    assert read(FARES) == {"r1": ["1030"]}
    first.close()
    second.close()


def test_a_calculator_that_was_replaced_can_charge_nothing_any_more(broker, ride, read):
    first = FareCalculator(broker.bootstrap)
    ride("r1", km=4, minutes=10)
    work(first, 1)
    second = FareCalculator(broker.bootstrap)
    broker.clock.advance(minutes=1)
    ride("r2", km=4, minutes=10)
    work(second, 1)

    with pytest.raises(KafkaException, match="fenced"):
        first._producer.begin_transaction()
        first._producer.produce(FARES, key="r2", value="0")
        first._producer.commit_transaction(30)

    assert read(FARES) == {"r1": ["1030"], "r2": ["1030"]}
    first.close()
    second.close()


def test_rides_that_nobody_charged_for_a_week_are_gone(broker, ride, read):
    """The service was down for more than a week: what the topic keeps no longer is not charged, the rest is."""
    ride("r1", km=4, minutes=10)
    broker.clock.advance(days=8)
    ride("r2", km=1, minutes=1)
    late = FareCalculator(broker.bootstrap)
    work(late, 1)
    assert read(FARES) == {"r2": ["400"]}
    late.close()


def _dies(_: bytes) -> bytes:
    raise RuntimeError("the process dies here")
