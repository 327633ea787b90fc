"""InitProducerId, in every version."""

from typing import Any

import pytest

from broker.running_broker import RunningBroker
from broker.wire_client import versions
from respool.wire.api_table import Api

VERSIONS = versions(Api.INIT_PRODUCER_ID)
REQUEST_TIMED_OUT = 7
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

    assert (reply.error_code, reply.producer_id) == (REQUEST_TIMED_OUT, -1)
