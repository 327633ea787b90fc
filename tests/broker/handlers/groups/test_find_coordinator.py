"""FindCoordinator, in every version."""

import logging
from typing import Any

import pytest

from broker.running_broker import RunningBroker, StartBroker
from broker.wire_client import versions
from respool.broker.metadata.catalog_feed import CatalogFeed
from respool.ports.metadata_store import StoreUnavailable
from respool.wire.api_table import Api

COORDINATOR_NOT_AVAILABLE = 15
INVALID_REQUEST = 42
GROUP = 0
TRANSACTION = 1
NO_TYPE = 7

VERSIONS = versions(Api.FIND_COORDINATOR)
every_version = pytest.mark.parametrize("version", VERSIONS)
every_version_with_type = pytest.mark.parametrize("version", VERSIONS[1:])


def ask(broker: RunningBroker, version: int, *keys: str, key_type: int = GROUP) -> list[Any]:
    reply = broker.ask(
        Api.FIND_COORDINATOR, version, key=keys[0], key_type=key_type, coordinator_keys=keys
    )
    return list(reply.coordinators) if version >= 4 else [reply]


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    return start_broker(offsets_topic_partitions=3)


@every_version
def test_a_group_is_looked_after_here_and_its_topic_is_made(
    broker: RunningBroker, version: int
) -> None:
    (found,) = ask(broker, version, "drivers")

    assert (found.error_code, found.node_id, found.host, found.port) == (0, 1, "127.0.0.1", 9092)
    topic = broker.broker.image.topics["__consumer_offsets"]
    assert topic.internal
    assert len(topic.partitions) == 3
    assert topic.overrides["respool.flush"] == "always"


@pytest.mark.parametrize("version", VERSIONS[4:])
def test_every_key_asked_for_is_answered_in_order(broker: RunningBroker, version: int) -> None:
    keys = ["b", "a", "b", "", "größer 🦉"]

    found = ask(broker, version, *keys)

    assert [one.key for one in found] == keys
    assert {one.node_id for one in found} == {1}


def test_two_who_ask_at_once_get_one_topic(broker: RunningBroker) -> None:
    request = (Api.FIND_COORDINATOR, 2, {"key": "drivers", "key_type": GROUP})

    replies = broker.ask_at_once(request, request)

    assert [one.error_code for one in replies] == [0, 0]
    assert len(broker.broker.partitions) == 3


@pytest.mark.parametrize("crash", [False, True])
def test_the_topic_stays_as_it_is_over_a_restart(broker: RunningBroker, crash: bool) -> None:
    ask(broker, 4, "drivers")
    before = broker.broker.image.topics["__consumer_offsets"]

    broker.restart(crash=crash)
    ask(broker, 4, "drivers")

    assert broker.broker.image.topics["__consumer_offsets"].id == before.id
    assert len(broker.broker.partitions) == 3


@every_version_with_type
def test_the_first_transactional_id_makes_the_topic_of_transactions(
    broker: RunningBroker, version: int
) -> None:
    (found,) = ask(broker, version, "bank", key_type=TRANSACTION)

    assert (found.error_code, found.node_id) == (0, 1)
    assert list(broker.broker.image.topics) == ["__transaction_state"]


@every_version_with_type
def test_there_is_no_third_kind_of_coordinator(broker: RunningBroker, version: int) -> None:
    (found,) = ask(broker, version, "drivers", key_type=NO_TYPE)

    assert found.error_code == INVALID_REQUEST
    assert not broker.broker.image.topics


@every_version
def test_a_topic_that_cannot_be_made_is_told_to_client_and_operator(
    start_broker: StartBroker, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    broker = start_broker(offsets_topic_partitions=3, partitions_max=2)

    with caplog.at_level(logging.ERROR):
        (found,) = ask(broker, version, "drivers")

        for _ in range(3):
            ask(broker, version, "drivers")

    assert found.error_code == COORDINATOR_NOT_AVAILABLE
    # Clients ask again for ever, which is no news.
    assert caplog.text.count("the topic __consumer_offsets cannot be created") == 1


def test_a_topic_that_cannot_be_made_while_the_store_is_away_is_no_error_of_the_broker(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def away(*_: object, **__: object) -> int:
        raise StoreUnavailable("as the test wants it")

    with monkeypatch.context() as during, caplog.at_level(logging.WARNING):
        during.setattr(CatalogFeed, "write", away)
        (found,) = ask(broker, VERSIONS[-1], "drivers")

    assert found.error_code == COORDINATOR_NOT_AVAILABLE
    assert [one.levelname for one in caplog.records if "cannot be created" in one.message] == [
        "WARNING"
    ]
