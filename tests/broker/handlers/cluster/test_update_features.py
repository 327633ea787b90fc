"""UpdateFeatures, in every version: a feature keeps the level that it has."""

from typing import Any

import pytest

from broker.running_broker import RunningBroker
from broker.wire_client import versions
from respool.model.broker_features import FEATURES
from respool.wire.api_table import Api

INVALID_UPDATE_VERSION = 95
UPGRADE, SAFE_DOWNGRADE = 1, 2
# Up to here the reply has a result for each feature.
RESULTS_VERSION_MAX = 1

every_version = pytest.mark.parametrize("version", versions(Api.UPDATE_FEATURES))


def update(
    broker: RunningBroker, version: int, *updates: tuple[str, int], kind: int = UPGRADE
) -> Any:
    asked = [
        {
            "feature": name,
            "max_version_level": level,
            "allow_downgrade": kind != UPGRADE,
            "upgrade_type": kind,
        }
        for name, level in updates
    ]
    return broker.ask(
        Api.UPDATE_FEATURES, version, timeout=1000, feature_updates=asked, validate_only=False
    )


@every_version
def test_features_are_updated_to_the_level_that_they_have(
    running_broker: RunningBroker, version: int
) -> None:
    wanted = [(one.name, one.level) for one in FEATURES]

    reply = update(running_broker, version, *wanted)

    assert (reply.error_code, reply.error_message) == (0, None)
    if version <= RESULTS_VERSION_MAX:
        assert [(one.feature, one.error_code) for one in reply.results] == [
            (name, 0) for name, _ in wanted
        ]


@every_version
@pytest.mark.parametrize(
    ("other", "kind", "why"),
    [
        (("transaction.version", 1), SAFE_DOWNGRADE, "has level 2 in every broker"),
        (("transaction.version", 0), SAFE_DOWNGRADE, "has level 2 in every broker"),
        (("metadata.version", 31), UPGRADE, "has level 30 in every broker"),
        (("streams.version", 1), UPGRADE, "there is no feature 'streams.version'"),
    ],
)
def test_another_level_is_refused_with_the_reason_and_so_is_the_whole_request(
    running_broker: RunningBroker, version: int, other: tuple[str, int], kind: int, why: str
) -> None:
    reply = update(running_broker, version, ("group.version", 1), other, kind=kind)

    assert reply.error_code == INVALID_UPDATE_VERSION
    assert why in reply.error_message
    assert not getattr(reply, "results", ())


def test_an_update_of_an_unknown_kind_is_refused(running_broker: RunningBroker) -> None:
    reply = update(running_broker, 2, ("group.version", 1), kind=9)

    assert reply.error_code == INVALID_UPDATE_VERSION
