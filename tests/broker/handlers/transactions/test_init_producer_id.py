"""InitProducerId, in every version."""

from typing import Any

import pytest

from broker.running_broker import RunningBroker, StartBroker
from broker.transaction_client import (
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_LOAD_IN_PROGRESS,
    INVALID_PRODUCER_EPOCH,
    INVALID_TRANSACTION_TIMEOUT,
    NOT_COORDINATOR,
    PRODUCER_FENCED,
    Producer,
    begin_to_load,
    has_open_transaction,
    let_pass,
    read,
    restart,
    start_with_transactions,
)
from broker.wire_client import versions
from respool.wire.api_table import Api

VERSIONS = versions(Api.INIT_PRODUCER_ID)
INVALID_REQUEST = 42

every_version = pytest.mark.parametrize("version", VERSIONS)
# KIP-360
every_version_with_current_id = pytest.mark.parametrize("version", VERSIONS[3:])


def ask(
    broker: RunningBroker, version: int, transactional_id: str | None = None, **fields: Any
) -> Any:
    return broker.ask(
        Api.INIT_PRODUCER_ID,
        version,
        transactional_id=transactional_id,
        transaction_timeout=60_000,
        **fields,
    )


@every_version
def test_every_producer_gets_an_id_of_its_own(running_broker: RunningBroker, version: int) -> None:
    replies = [ask(running_broker, version) for _ in range(3)]

    assert all((one.error_code, one.producer_epoch) == (0, 0) for one in replies)
    assert len({one.producer_id for one in replies}) == 3


@every_version
def test_no_id_is_given_out_again_after_a_crash(
    running_broker: RunningBroker, version: int
) -> None:
    before = ask(running_broker, version).producer_id
    running_broker.restart(crash=True)

    assert ask(running_broker, version).producer_id > before


@every_version_with_current_id
def test_an_idempotent_producer_that_names_its_id_gets_a_new_one(
    running_broker: RunningBroker, version: int
) -> None:
    first = ask(running_broker, version)

    again = ask(running_broker, version, producer_id=first.producer_id, producer_epoch=0)

    assert (again.error_code, again.producer_epoch) == (0, 0)
    assert again.producer_id != first.producer_id


@every_version_with_current_id
@pytest.mark.parametrize(("producer_id", "producer_epoch"), [(7, -1), (-1, 0)])
def test_half_of_the_current_id_and_epoch_is_refused(
    running_broker: RunningBroker, version: int, producer_id: int, producer_epoch: int
) -> None:
    reply = ask(running_broker, version, producer_id=producer_id, producer_epoch=producer_epoch)

    assert (reply.error_code, reply.producer_id) == (INVALID_REQUEST, -1)


@every_version
def test_an_empty_transactional_id_is_refused(running_broker: RunningBroker, version: int) -> None:
    assert ask(running_broker, version, "").error_code == INVALID_REQUEST


@every_version
def test_without_a_metadata_store_the_client_is_told_to_try_again(
    running_broker: RunningBroker, version: int
) -> None:
    running_broker.run(running_broker.store.close())

    reply = ask(running_broker, version)

    assert (reply.error_code, reply.producer_id) == (COORDINATOR_LOAD_IN_PROGRESS, -1)


# --- with a transactional id


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    return start_with_transactions(start_broker)


@every_version
def test_a_transactional_id_keeps_its_producer_id_and_gets_the_next_epoch(
    broker: RunningBroker, version: int
) -> None:
    first, second = (ask(broker, version, "bank") for _ in range(2))
    other = ask(broker, version, "shop")

    assert (first.error_code, first.producer_epoch) == (0, 0)
    assert (second.producer_id, second.producer_epoch) == (first.producer_id, 1)
    assert (other.producer_epoch, other.producer_id != first.producer_id) == (0, True)
    restart(broker, crash=True)
    third = ask(broker, version, "bank")
    assert (third.producer_id, third.producer_epoch) == (first.producer_id, 2)


@every_version
def test_what_an_older_producer_had_open_is_aborted_first(
    broker: RunningBroker, version: int
) -> None:
    older = Producer(broker)
    older.write("rides", 0, b"lost")

    reply = ask(broker, version, "bank")

    assert (reply.error_code, reply.producer_id) == (0, older.id)
    assert reply.producer_epoch == older.epoch + 2
    assert read(broker, "rides") == []
    assert not has_open_transaction(broker, "rides")
    assert older.end(commit=True) == PRODUCER_FENCED


@every_version
def test_while_the_markers_of_the_older_cannot_be_written_the_client_tries_again(
    broker: RunningBroker, version: int
) -> None:
    Producer(broker).write("rides", 0)
    broker.take_offline("rides", 0)
    newer = Producer(broker, init=False)

    asking = broker.start(newer.init_(version))
    assert not asking.done()
    let_pass(broker, 1_000)

    reply = broker.finish(asking)
    assert (reply.error_code, reply.producer_id) == (CONCURRENT_TRANSACTIONS, -1)


@every_version
@pytest.mark.parametrize("timeout_ms", [15 * 60_000 + 1, 0, -1])
def test_a_timeout_above_the_maximum_or_none_at_all_is_refused(
    broker: RunningBroker, version: int, timeout_ms: int
) -> None:
    reply = Producer(broker, timeout_ms=timeout_ms, init=False).init(version)

    assert (reply.error_code, reply.producer_id) == (INVALID_TRANSACTION_TIMEOUT, -1)
    assert Producer(broker, timeout_ms=15 * 60_000, init=False).init(version).error_code == 0


@every_version_with_current_id
def test_a_producer_that_names_itself_goes_on_with_the_next_epoch(
    broker: RunningBroker, version: int
) -> None:
    producer = Producer(broker)
    who = {"producer_id": producer.id, "producer_epoch": producer.epoch}

    first = ask(broker, version, "bank", **who)
    # Its answer was lost.
    again = ask(broker, version, "bank", **who)

    assert (first.error_code, first.producer_id, first.producer_epoch) == (0, producer.id, 1)
    assert (again.error_code, again.producer_epoch) == (0, 1)


@pytest.mark.parametrize(
    ("version", "code"),
    [(3, INVALID_PRODUCER_EPOCH), (4, PRODUCER_FENCED), (5, PRODUCER_FENCED)],
)
def test_a_zombie_that_names_itself_is_fenced(
    broker: RunningBroker, version: int, code: int
) -> None:
    zombie = Producer(broker)
    Producer(broker)
    Producer(broker)

    for producer_id in (zombie.id, zombie.id + 1):
        who = {"producer_id": producer_id, "producer_epoch": zombie.epoch}
        reply = ask(broker, version, "bank", **who)
        assert (reply.error_code, reply.producer_id) == (code, -1)


@every_version
def test_without_a_topic_of_transactions_the_coordinator_is_elsewhere(
    running_broker: RunningBroker, version: int
) -> None:
    assert ask(running_broker, version, "bank").error_code == NOT_COORDINATOR


@every_version
def test_while_the_coordinator_loads_a_transactional_producer_waits(
    broker: RunningBroker, version: int
) -> None:
    begin_to_load(broker)

    assert ask(broker, version, "bank").error_code == COORDINATOR_LOAD_IN_PROGRESS
    assert ask(broker, version, None).error_code == 0


@every_version
def test_without_a_metadata_store_a_new_transactional_id_must_try_again(
    broker: RunningBroker, version: int
) -> None:
    known = Producer(broker, "known")
    # What it has in stock of new ids is gone with a restart.
    restart(broker, crash=False)
    broker.run(broker.store.close())

    assert ask(broker, version, "bank").error_code == COORDINATOR_LOAD_IN_PROGRESS
    # The known one needs nothing from there.
    reply = ask(broker, version, "known")
    assert (reply.error_code, reply.producer_id) == (0, known.id)
