"""Transactions of the second version (KIP-890): every end comes with the next epoch, and may be asked for again."""

from typing import NoReturn

import pytest

from broker.running_broker import RunningBroker, StartBroker
from broker.transaction_client import (
    CONCURRENT_TRANSACTIONS,
    INVALID_TXN_STATE,
    NEW,
    OLD,
    Producer,
    fetch_offsets,
    has_open_transaction,
    markers,
    read,
    release,
    restart,
    retry_at_once,
    settle,
    start_with_transactions,
)
from respool.broker.coordinators.marker_writer import MarkerWriter
from respool.model.errors import StorageFailed

either_way = pytest.mark.parametrize("is_commit", [False, True], ids=["abort", "commit"])
either_end = pytest.mark.parametrize("crash", [False, True], ids=["clean", "crash"])


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    return start_with_transactions(start_broker)


@either_way
def test_an_end_whose_reply_was_lost_can_be_asked_for_again(
    broker: RunningBroker, is_commit: bool
) -> None:
    producer = Producer(broker, speaks=NEW)
    producer.write("rides", 0, b"a")
    broker.offload.hold()
    first = broker.start(producer.end_(commit=is_commit, keep=False))
    # While the markers are on their way the client is to come back.
    again = broker.start(producer.end_(commit=is_commit))
    release(broker, 1)
    assert broker.finish(first).error_code == 0
    assert broker.finish(again).error_code == CONCURRENT_TRANSACTIONS
    release(broker)

    assert producer.end(commit=not is_commit) == INVALID_TXN_STATE
    assert producer.end(commit=is_commit) == 0

    assert producer.epoch == 1
    assert [one.is_commit for one in markers(broker, "rides")] == [is_commit]
    producer.write("rides", 0, b"b")
    producer.commit()
    assert read(broker, "rides") == ([b"a", b"b"] if is_commit else [b"b"])


@either_end
def test_an_end_whose_reply_was_lost_with_the_broker_can_be_asked_for_again(
    broker: RunningBroker, crash: bool
) -> None:
    producer = Producer(broker, speaks=NEW)
    producer.write("rides", 0, b"a")
    producer.end(commit=True, keep=False)

    restart(broker, crash=crash)

    assert producer.end(commit=False) == INVALID_TXN_STATE
    assert producer.end(commit=True) == 0
    assert producer.epoch == 1
    assert read(broker, "rides") == [b"a"]


def test_the_next_transaction_may_begin_while_the_last_is_still_being_marked(
    broker: RunningBroker,
) -> None:
    producer = Producer(broker, speaks=NEW)
    producer.write("rides", 0, b"a")
    broker.offload.hold()
    ending = broker.start(producer.end_(commit=True))
    release(broker, 1)
    assert broker.finish(ending).error_code == 0
    sending = broker.start(producer.send_("rides", 0, b"b"))
    assert not sending.done()

    release(broker)

    assert broker.finish(sending).error_code == 0
    producer.commit()
    assert read(broker, "rides") == [b"a", b"b"]


def test_what_waits_for_the_last_transactions_marker_is_not_refused_because_of_it(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The marker makes guards void that were given before it; the next transaction's was, and waits."""
    retry_at_once(monkeypatch)
    producer = Producer(broker, speaks=NEW)
    producer.write("rides", 0, b"a")
    producer.write_offsets("drivers", ("rides", 0, 1))
    with monkeypatch.context() as patch:
        patch.setattr(MarkerWriter, "append", _append_nothing)
        assert producer.end(commit=True) == 0
        sending = broker.start(producer.send_("rides", 0, b"b"))
        committing = broker.start(producer.commit_offsets_("drivers", ("rides", 0, 2)))
        settle(broker)
        assert not sending.done()
        assert not committing.done()

    settle(broker)

    assert broker.finish(sending).error_code == 0
    assert broker.finish(committing) == [0]
    producer.commit()
    assert read(broker, "rides") == [b"a", b"b"]
    assert fetch_offsets(broker, "drivers", "rides", 0, stable=True) == (0, 2)


def _append_nothing(*_: object, **__: object) -> NoReturn:
    raise StorageFailed("as the test wants it")


def test_when_the_epochs_run_out_the_producer_goes_on_with_a_new_id(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("respool.coordination.transactions.transaction_end.LAST_USABLE_EPOCH", 1)
    producer = Producer(broker, speaks=NEW)
    first_id = producer.id
    seen = []
    for value in (b"a", b"b", b"c"):
        producer.write("rides", 0, value)
        assert producer.end(commit=True) == 0
        seen.append((producer.id == first_id, producer.epoch))

    settle(broker)
    assert seen == [(True, 1), (False, 0), (False, 1)]
    assert read(broker, "rides") == [b"a", b"b", b"c"]
    assert not has_open_transaction(broker, "rides")


def test_a_client_may_change_to_the_second_version_from_one_transaction_to_the_next(
    broker: RunningBroker,
) -> None:
    producer = Producer(broker, speaks=OLD)
    producer.write("rides", 0, b"a")
    producer.commit()
    producer.speaks = NEW
    producer.write("rides", 0, b"b")
    producer.commit()
    producer.speaks = OLD
    producer.write("rides", 0, b"c")
    producer.commit()

    assert read(broker, "rides") == [b"a", b"b", b"c"]
    assert producer.epoch == 1
