"""ApiVersions, in every version: the table, and the features; from 5 on whom the client means."""

from typing import Any

import pytest

from broker.running_broker import RunningBroker
from broker.wire_client import versions
from respool.wire.api_table import API_TABLE, Api

VERSIONS = versions(Api.API_VERSIONS)
REBOOTSTRAP_REQUIRED = 129
ANNOUNCED = [spec for spec in API_TABLE.values() if spec.is_announced]


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
        spec.key: (spec.advertised_min, spec.version_max) for spec in ANNOUNCED
    }


@pytest.mark.parametrize("version", VERSIONS[4:])
def test_features_are_those_that_are_complete_here(
    running_broker: RunningBroker, version: int
) -> None:
    reply = ask(running_broker, version)

    supported = {one.name: (one.min_version, one.max_version) for one in reply.supported_features}
    finalized = {
        one.name: (one.min_version_level, one.max_version_level) for one in reply.finalized_features
    }
    # 30 is 4.3-IV0.
    assert supported == {
        "metadata.version": (30, 30),
        "group.version": (0, 1),
        "share.version": (0, 1),
        "transaction.version": (0, 2),
    }
    assert finalized == {
        "metadata.version": (30, 30),
        "group.version": (1, 1),
        "share.version": (1, 1),
        "transaction.version": (2, 2),
    }
    # Clients take features for unknown with any epoch below 0.
    assert reply.finalized_features_epoch >= 0


def test_clients_of_version_3_are_told_no_feature_that_could_be_off(
    running_broker: RunningBroker,
) -> None:
    # They cannot read a range that begins with 0 (KAFKA-17011).
    reply = ask(running_broker, 3)

    assert [one.name for one in reply.supported_features] == ["metadata.version"]
    assert [one.name for one in reply.finalized_features] == ["metadata.version"]
    assert all(one.min_version >= 1 for one in reply.supported_features)


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
        assert (reply.error_code, len(reply.api_keys)) == (0, len(ANNOUNCED))
    else:
        assert (reply.error_code, reply.api_keys) == (REBOOTSTRAP_REQUIRED, ())
