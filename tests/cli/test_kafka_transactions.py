"""What is asked of which broker, and what its errors become."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Self

import pytest
from kio.schema.errors import ErrorCode

from respool.cli.broker_socket import Question
from respool.cli.errors import BrokerUnreachable
from respool.cli.kafka import TopicInfo
from respool.cli.kafka_transactions import (
    RETRY_SECONDS,
    TRANSACTION_TOPIC,
    Refused,
    Transaction,
    Transactions,
)
from respool.client.kafka.transactions import OpenTransaction
from respool.wire.api_table import Api
from respool.wire.client_codec import encode_request

ONE, TWO = ("one", 9092), ("two", 9092)


class Cluster:
    """Two brokers; rides has a partition on each, and one that nobody leads."""

    broker = "one:9092"

    def __init__(self, *, has_transactions: bool = True) -> None:
        self._topics = {"rides": TopicInfo(name="rides", leaders={0: 1, 1: 2, 2: None})}
        if has_transactions:
            self._topics[TRANSACTION_TOPIC] = TopicInfo(name=TRANSACTION_TOPIC, leaders={0: 1})

    def addresses(self) -> dict[int, tuple[str, int]]:
        return {1: ONE, 2: TWO}

    def topics(self) -> dict[str, TopicInfo]:
        return self._topics

    def topic(self, name: str) -> TopicInfo:
        return self._topics[name]


class Brokers:
    """Stands for `BrokerSocket`, at every address; answers what it was given, in that order."""

    def __init__(self, *replies: Any) -> None:
        self._replies = list(replies)
        self.asked: list[tuple[tuple[str, int], Question]] = []
        self._address = ONE
        self.now = 0.0

    def __call__(self, host: str, port: int) -> Self:
        self._address = (host, port)
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ask(self, question: Question) -> list[Any]:
        # It must be a request that can be sent.
        encode_request(*question, correlation_id=1, client_id="c")
        self.asked.append((self._address, question))
        return [self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]]

    def pause(self, seconds: float) -> None:
        self.now += seconds


def transactions(brokers: Brokers, cluster: Cluster | None = None) -> Transactions:
    return Transactions(
        cluster or Cluster(),  # type: ignore[arg-type]
        connect=brokers,  # type: ignore[arg-type]
        clock=lambda: brokers.now,
        pause=brokers.pause,
    )


def listed(*names: str, code: ErrorCode = ErrorCode.none) -> Any:
    states = [
        SimpleNamespace(transactional_id=name, transaction_state="Ongoing", producer_id=number)
        for number, name in enumerate(names)
    ]
    return SimpleNamespace(error_code=code, transaction_states=states)


def found_at(host: str) -> Any:
    one = SimpleNamespace(key="bank", host=host, port=9092, error_code=ErrorCode.none)
    return SimpleNamespace(coordinators=[one])


def producers_of(
    number: int, producers: Sequence[Any] = (), *, code: ErrorCode = ErrorCode.none
) -> Any:
    partition = SimpleNamespace(partition_index=number, error_code=code, active_producers=producers)
    return SimpleNamespace(topics=[SimpleNamespace(name="rides", partitions=[partition])])


def initialised(code: ErrorCode = ErrorCode.none) -> Any:
    return SimpleNamespace(error_code=code, producer_epoch=5)


BANK = Transaction(
    transactional_id="bank",
    state="Ongoing",
    producer_id=7,
    producer_epoch=3,
    timeout_ms=60_000,
    started_ms=0,
    partitions=(("rides", 0),),
)
WRITE = OpenTransaction(
    topic="rides",
    partition=1,
    producer_id=7,
    producer_epoch=3,
    start_offset=40,
    last_ms=0,
    coordinator_epoch=-1,
)


def test_every_broker_tells_of_the_transactions_it_coordinates() -> None:
    brokers = Brokers(listed("b"), listed("c", "a"))
    found = transactions(brokers).find(states=["Ongoing"])
    assert [one.transactional_id for one in found] == ["a", "b", "c"]
    assert [(address, question.version) for address, question in brokers.asked] == [
        (ONE, 0),
        (TWO, 0),
    ]


def test_only_a_search_by_age_needs_a_newer_broker() -> None:
    brokers = Brokers(listed())
    transactions(brokers).find(open_longer_than_ms=600_000)
    for _, question in brokers.asked:
        assert (question.version, question.fields["duration_filter"]) == (1, 600_000)


def test_a_coordinator_that_is_loading_is_waited_for() -> None:
    brokers = Brokers(listed(code=ErrorCode.coordinator_load_in_progress), listed("bank"), listed())
    assert [one.transactional_id for one in transactions(brokers).find()] == ["bank"]
    assert brokers.now > 0


def test_but_not_for_ever() -> None:
    brokers = Brokers(listed(code=ErrorCode.coordinator_load_in_progress))
    with pytest.raises(Refused, match="coordinator load in progress"):
        transactions(brokers).find()
    assert RETRY_SECONDS <= brokers.now < RETRY_SECONDS + 1


def test_where_there_never_was_a_transaction_nothing_is_asked_that_would_make_their_topic() -> None:
    brokers = Brokers(None)
    assert transactions(brokers, Cluster(has_transactions=False)).describe(["bank"]) == {}
    assert brokers.asked == []


def test_the_coordinator_is_looked_for_again_when_it_has_moved() -> None:
    moved = initialised(ErrorCode.not_coordinator)
    brokers = Brokers(found_at("one"), moved, found_at("two"), initialised())
    assert transactions(brokers).fence(BANK) == 5
    inits = [
        (address, question.fields)
        for address, question in brokers.asked
        if question.api == Api.INIT_PRODUCER_ID
    ]
    assert [address for address, _ in inits] == [ONE, TWO]
    # As a new producer, so that the old one is fenced.
    assert inits[0][1]["producer_id"] == inits[0][1]["producer_epoch"] == -1
    assert inits[0][1]["transaction_timeout"] == 60_000


def test_a_timeout_that_is_too_long_by_now_does_not_keep_an_operator_from_aborting() -> None:
    too_long = initialised(ErrorCode.invalid_transaction_timeout)
    brokers = Brokers(found_at("one"), too_long, found_at("one"), initialised())
    assert transactions(brokers).fence(BANK) == 5
    assert brokers.asked[-1][1].fields["transaction_timeout"] == 1


def test_other_refusals_are_told() -> None:
    denied = initialised(ErrorCode.transactional_id_authorization_failed)
    with pytest.raises(Refused, match="bank is not fenced: transactional id authorization failed"):
        transactions(Brokers(found_at("one"), denied)).fence(BANK)


def test_partitions_are_asked_where_they_are_led_and_those_that_do_not_answer_are_named() -> None:
    producers = [
        SimpleNamespace(
            producer_id=7,
            producer_epoch=3,
            current_txn_start_offset=start_offset,
            last_timestamp=0,
            coordinator_epoch=-1,
        )
        for start_offset in (-1, 40)
    ]
    brokers = Brokers(
        producers_of(0, code=ErrorCode.kafka_storage_error), producers_of(1, producers)
    )
    places = [("rides", number) for number in range(3)]
    asked = transactions(brokers)
    assert asked.open_writes(places) == [WRITE]
    assert asked.unasked == {
        ("rides", 0): "kafka storage error",
        ("rides", 2): "nobody leads it",
    }
    assert [(address, question.fields["topics"]) for address, question in brokers.asked] == [
        (ONE, [{"name": "rides", "partition_indexes": [0]}]),
        (TWO, [{"name": "rides", "partition_indexes": [1]}]),
    ]


def test_a_marker_goes_to_the_leader_with_the_producer_s_epoch() -> None:
    partition = SimpleNamespace(error_code=ErrorCode.none)
    topic = SimpleNamespace(partitions=[partition])
    brokers = Brokers(SimpleNamespace(markers=[SimpleNamespace(topics=[topic])]))
    transactions(brokers).write_abort_marker(WRITE)
    ((address, question),) = brokers.asked
    (marker,) = question.fields["markers"]
    assert (address, marker["producer_epoch"], marker["coordinator_epoch"]) == (TWO, 3, 0)
    assert marker["transaction_result"] is False


def test_a_partition_that_nobody_leads_cannot_be_written() -> None:
    write = OpenTransaction(
        topic="rides",
        partition=2,
        producer_id=7,
        producer_epoch=3,
        start_offset=40,
        last_ms=0,
        coordinator_epoch=0,
    )
    with pytest.raises(BrokerUnreachable, match="nobody leads rides/2"):
        transactions(Brokers(None)).write_abort_marker(write)
