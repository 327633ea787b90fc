"""DescribeAcls, CreateAcls and DeleteAcls, in every version, on a broker that authorizes nothing."""

import pytest

from broker.running_broker import RunningBroker
from broker.wire_client import versions
from respool.wire.api_table import Api

SECURITY_DISABLED = 54
ANY, READ, ALLOW, LITERAL = 1, 3, 3, 3
TOPIC = 2

every_version = pytest.mark.parametrize("version", versions(Api.DESCRIBE_ACLS))

FILTER = {
    "resource_type_filter": TOPIC,
    "resource_name_filter": None,
    "pattern_type_filter": LITERAL,
    "principal_filter": None,
    "host_filter": None,
    "operation": ANY,
    "permission_type": ANY,
}
CREATION = {
    "resource_type": TOPIC,
    "resource_name": "rides",
    "resource_pattern_type": LITERAL,
    "principal": "User:alice",
    "host": "*",
    "operation": READ,
    "permission_type": ALLOW,
}


@every_version
def test_there_are_no_acls_to_describe(running_broker: RunningBroker, version: int) -> None:
    reply = running_broker.ask(Api.DESCRIBE_ACLS, version, **FILTER)

    assert (reply.error_code, reply.resources) == (SECURITY_DISABLED, ())
    assert "does not authorize" in reply.error_message


@every_version
def test_no_acl_is_accepted_for_it_would_protect_nothing(
    running_broker: RunningBroker, version: int
) -> None:
    reply = running_broker.ask(Api.CREATE_ACLS, version, creations=[CREATION, CREATION])

    assert [one.error_code for one in reply.results] == [SECURITY_DISABLED] * 2
    assert all("does not authorize" in one.error_message for one in reply.results)


@every_version
def test_every_filter_of_a_deletion_is_answered(
    running_broker: RunningBroker, version: int
) -> None:
    reply = running_broker.ask(Api.DELETE_ACLS, version, filters=[FILTER, FILTER])

    assert [(one.error_code, one.matching_acls) for one in reply.filter_results] == [
        (SECURITY_DISABLED, ())
    ] * 2
