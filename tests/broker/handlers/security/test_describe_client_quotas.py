"""DescribeClientQuotas and AlterClientQuotas, in every version, on a broker that enforces no quotas."""

from typing import Any

import pytest

from broker.running_broker import RunningBroker
from broker.wire_client import versions
from respool.wire.api_table import Api

UNSUPPORTED_VERSION = 35
ANY_NAME = 2

every_version = pytest.mark.parametrize("version", versions(Api.ALTER_CLIENT_QUOTAS))
LIMIT = {"key": "producer_byte_rate", "value": 1e6, "remove": False}
REMOVAL = {"key": "consumer_byte_rate", "value": 0.0, "remove": True}


def alter(
    broker: RunningBroker, version: int, *changes: tuple[str | None, list[Any]], dry: bool = False
) -> list[Any]:
    """Ask for these changes of users' quotas; None is the default user."""
    entries = [
        {"entity": [{"entity_type": "user", "entity_name": user}], "ops": ops}
        for user, ops in changes
    ]
    reply = broker.ask(Api.ALTER_CLIENT_QUOTAS, version, entries=entries, validate_only=dry)
    named = [
        [(one.entity_type, one.entity_name) for one in entry.entity] for entry in reply.entries
    ]
    assert named == [[("user", user)] for user, _ in changes]
    return [*reply.entries]


@every_version
def test_no_client_has_a_quota(running_broker: RunningBroker, version: int) -> None:
    component = {"entity_type": "user", "match_type": ANY_NAME, "match": None}
    reply = running_broker.ask(
        Api.DESCRIBE_CLIENT_QUOTAS, version, components=[component], strict=False
    )
    assert (reply.error_code, reply.error_message, reply.entries) == (0, None, ())


@every_version
@pytest.mark.parametrize("dry", [False, True])
def test_a_quota_that_would_not_be_enforced_is_never_accepted(
    running_broker: RunningBroker, version: int, dry: bool
) -> None:
    refused, also = alter(
        running_broker, version, ("alice", [REMOVAL, LIMIT]), (None, [LIMIT]), dry=dry
    )

    assert refused.error_code == also.error_code == UNSUPPORTED_VERSION
    assert "does not enforce quotas" in refused.error_message
    assert "producer_byte_rate" in refused.error_message


@every_version
def test_removing_a_quota_that_is_not_there_succeeds(
    running_broker: RunningBroker, version: int
) -> None:
    (entry,) = alter(running_broker, version, ("alice", [REMOVAL]))

    assert (entry.error_code, entry.error_message) == (0, None)
