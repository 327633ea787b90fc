"""A share session from the client's side: epochs, acknowledgements, and what survives errors."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from respool.client.queues.queue_session import (
    Acknowledgement,
    DeliveredRange,
    QueuePlace,
    QueueSession,
)

TOPIC = UUID(int=1)
ZERO, ONE = QueuePlace(TOPIC, 0), QueuePlace(TOPIC, 1)
ACCEPT, RELEASE, GAP = Acknowledgement.ACCEPT, Acknowledgement.RELEASE, Acknowledgement.GAP


def fetch(session: QueueSession, *places: QueuePlace) -> dict[str, Any]:
    return session.fetch_fields(places, records_max=10, wait_ms=500, bytes_max=1_000)


def reply_of(*partitions: Any) -> Any:
    topics = [SimpleNamespace(topic_id=TOPIC, partitions=partitions)] if partitions else []
    return SimpleNamespace(responses=topics, acquisition_lock_timeout=timedelta(seconds=30))


def partition_of(number: int, *, error: int = 0, refusal: int = 0, acquired: Any = ()) -> Any:
    return SimpleNamespace(
        partition_index=number,
        error_code=error,
        acknowledge_error_code=refusal,
        records=b"records",
        acquired_records=[
            SimpleNamespace(first_offset=first, last_offset=last, delivery_count=count)
            for first, last, count in acquired
        ],
    )


def acknowledged(fields: dict[str, Any]) -> dict[int, list[tuple[int, int, list[int]]]]:
    return {
        one["partition_index"]: [
            (each["first_offset"], each["last_offset"], list(each["acknowledge_types"]))
            for each in one["acknowledgement_batches"]
        ]
        for topic in fields["topics"]
        for one in topic["partitions"]
    }


def opened(*places: QueuePlace) -> QueueSession:
    session = QueueSession("billing", "member")
    fetch(session, *places)
    session.on_fetched(reply_of())
    return session


def test_the_first_request_opens_the_session_with_all_partitions() -> None:
    session = QueueSession("billing", "member")
    fields = fetch(session, ZERO, ONE)
    assert (fields["share_session_epoch"], acknowledged(fields)) == (0, {0: [], 1: []})
    session.on_fetched(reply_of())
    fields = fetch(session, ZERO, ONE)
    assert (fields["share_session_epoch"], fields["topics"]) == (1, [])


def test_acknowledgements_go_with_the_next_fetch_in_ranges_of_one_type() -> None:
    session = opened(ZERO)
    for offset in (3, 1, 2, 6):
        session.acknowledge(ZERO, offset, ACCEPT)
    session.acknowledge(ZERO, 4, RELEASE)
    session.acknowledge(ONE, 7, GAP)
    assert session.has_pending
    fields = fetch(session, ZERO)
    assert acknowledged(fields) == {0: [(1, 3, [1]), (4, 4, [2]), (6, 6, [1])], 1: [(7, 7, [0])]}
    session.on_fetched(reply_of())
    assert fetch(session, ZERO)["topics"] == []


def test_the_request_that_opens_a_session_acknowledges_nothing() -> None:
    session = QueueSession("billing", "member")
    session.acknowledge(ZERO, 1, ACCEPT)
    assert acknowledged(fetch(session, ZERO)) == {0: []}
    session.on_fetched(reply_of())
    assert acknowledged(fetch(session, ZERO)) == {0: [(1, 1, [1])]}


def test_partitions_that_are_not_assigned_any_more_are_forgotten() -> None:
    session = opened(ZERO, ONE)
    fields = fetch(session, ONE)
    assert fields["forgotten_topics_data"] == [{"topic_id": TOPIC, "partitions": [0]}]


def test_what_was_acquired_and_what_came_too_late_is_in_the_result() -> None:
    session = opened(ZERO, ONE)
    fetch(session, ZERO, ONE)
    result = session.on_fetched(
        reply_of(partition_of(0, acquired=[(5, 7, 2)]), partition_of(1, error=6, refusal=121))
    )
    (part,) = result.parts
    assert (part.place, part.ranges, part.records) == (ZERO, (DeliveredRange(5, 7, 2),), b"records")
    assert (result.errors, result.refused, result.lock_ms) == ({ONE: 6}, {ONE: 121}, 30_000)
    # A partition with an error is named again.
    assert acknowledged(fetch(session, ZERO, ONE)) == {1: []}


def test_after_an_error_of_the_session_what_was_sent_is_sent_again() -> None:
    session = opened(ZERO)
    session.acknowledge(ZERO, 1, ACCEPT)
    fetch(session, ZERO)
    session.acknowledge(ZERO, 2, ACCEPT)
    session.on_session_error()
    assert fetch(session, ZERO)["share_session_epoch"] == 0
    session.on_fetched(reply_of())
    assert acknowledged(fetch(session, ZERO)) == {0: [(1, 2, [1])]}


def test_after_a_lost_connection_nothing_is_held_and_nothing_acknowledged() -> None:
    session = opened(ZERO)
    session.acknowledge(ZERO, 1, ACCEPT)
    session.on_connection_lost()
    assert not session.has_pending
    assert acknowledged(fetch(session, ZERO)) == {0: []}


def test_a_close_takes_the_last_acknowledgements_along() -> None:
    session = opened(ZERO)
    session.acknowledge(ZERO, 1, ACCEPT)
    fields = session.acknowledge_fields(closes=True)
    assert (fields["share_session_epoch"], acknowledged(fields)) == (-1, {0: [(1, 1, [1])]})


def test_a_renewal_leaves_acknowledgements_for_later() -> None:
    session = opened(ZERO)
    session.acknowledge(ZERO, 1, ACCEPT)
    fields = session.renew_fields({ZERO: [3, 2]})
    assert (fields["is_renew_ack"], acknowledged(fields)) == (True, {0: [(2, 3, [4])]})
    assert session.has_pending


def test_epochs_go_on_at_1_after_the_largest() -> None:
    session = opened(ZERO)
    session.epoch = 2**31 - 1
    fetch(session, ZERO)
    session.on_fetched(reply_of())
    assert session.epoch == 1
