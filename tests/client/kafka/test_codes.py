"""One table of error codes: each has Kafka's name, a retriability, and for Produce a meaning."""

from respool.client.kafka.codes import (
    COORDINATOR_RETRIED,
    PRODUCER_FENCED,
    Code,
    ProduceOutcome,
    code_name,
    is_retriable,
    produce_outcome,
    refused,
    worst_of,
)
from respool.model.error_codes import ERRORS_BY_CODE


def test_codes_that_our_brokers_send_are_as_retriable_as_they_say() -> None:
    for code, error in ERRORS_BY_CODE.items():
        assert is_retriable(code) == error.retriable, error


def test_other_codes_are_as_retriable_as_kafka_says() -> None:
    assert is_retriable(Code.not_controller)
    assert not is_retriable(Code.topic_authorization_failed)


def test_a_code_newer_than_this_client_is_neither_retriable_nor_a_crash() -> None:
    assert not is_retriable(9_999)
    assert produce_outcome(9_999) is ProduceOutcome.FAIL
    assert code_name(9_999) == "an error newer than this client"


def test_what_a_coordinator_answers_in_passing_is_retriable() -> None:
    assert all(map(is_retriable, COORDINATOR_RETRIED))


def test_a_fenced_producer_fails_its_batches() -> None:
    assert {produce_outcome(code) for code in PRODUCER_FENCED} == {ProduceOutcome.FAIL}


def test_a_refusal_names_the_request_the_error_and_what_the_broker_said() -> None:
    error = refused("creating topic 'a'", 36, "it is there")
    assert str(error) == "creating topic 'a' failed: TOPIC_ALREADY_EXISTS (36): it is there"
    assert (error.code, error.name, error.message) == (36, "TOPIC_ALREADY_EXISTS", "it is there")
    assert not error.retriable
    assert str(refused("ListGroups", 14)) == "ListGroups failed: COORDINATOR_LOAD_IN_PROGRESS (14)"


def test_the_worst_of_many_codes_is_one_that_does_not_pass() -> None:
    assert worst_of([0, 0]) == 0
    assert worst_of([0, 14, 0]) == 14
    assert worst_of([14, 29, 0]) == 29
