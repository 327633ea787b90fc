"""ApiVersions, in every version: the table, and from 4 on the features."""

from typing import Any

import pytest

from broker.running_broker import RunningBroker
from broker.wire_client import versions
from respool.wire.api_table import API_TABLE, Api

VERSIONS = versions(Api.API_VERSIONS)
REBOOTSTRAP_REQUIRED = 129


def ask(broker: RunningBroker, version: int, **meant: Any) -> Any:
    return broker.ask(
        Api.API_VERSIONS,
        version,
        client_software_name="tester",
        client_software_version="1",
        **meant,
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_tells_what_is_served(running_broker: RunningBroker, version: int) -> None:
    reply = ask(running_broker, version)

    assert reply.error_code == 0
    assert {one.api_key: (one.min_version, one.max_version) for one in reply.api_keys} == {
        spec.key: (spec.advertised_min, spec.version_max) for spec in API_TABLE.values()
    }


@pytest.mark.parametrize("version", VERSIONS[4:])
def test_transactions_of_version_2_are_a_feature_that_is_switched_on(
    running_broker: RunningBroker, version: int
) -> None:
    reply = ask(running_broker, version)

    (supported,) = reply.supported_features
    (finalized,) = reply.finalized_features
    assert (supported.name, supported.min_version, supported.max_version) == (
        "transaction.version",
        0,
        2,
    )
    assert (finalized.name, finalized.min_version_level, finalized.max_version_level) == (
        "transaction.version",
        2,
        2,
    )
    # Clients take features for unknown with any epoch below 0.
    assert reply.finalized_features_epoch >= 0


@pytest.mark.parametrize("version", VERSIONS[:4])
def test_clients_that_cannot_read_the_feature_are_not_told_of_it(
    running_broker: RunningBroker, version: int
) -> None:
    reply = ask(running_broker, version)

    assert not getattr(reply, "supported_features", ())
    assert not getattr(reply, "finalized_features", ())
    assert getattr(reply, "finalized_features_epoch", -1) == -1


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "is_right"),
    [
        (None, -1, True),
        (None, 99, True),
        ("own", 1, True),
        ("own", 99, False),
        ("own", -1, False),
        ("another", 1, False),
    ],
)
def test_a_client_that_means_another_broker_is_sent_to_look_again(
    running_broker: RunningBroker, cluster_id: str | None, node_id: int, is_right: bool
) -> None:
    broker = running_broker.broker
    assert broker.settings.broker_id == 1
    meant = broker.image.cluster_id if cluster_id == "own" else cluster_id

    reply = ask(running_broker, 5, cluster_id=meant, node_id=node_id)

    if is_right:
        assert (reply.error_code, len(reply.api_keys)) == (0, len(API_TABLE))
    else:
        assert (reply.error_code, reply.api_keys) == (REBOOTSTRAP_REQUIRED, ())
