"""DescribeAcls, CreateAcls and DeleteAcls, in every version."""

from typing import Any

import pytest

from broker.running_broker import RunningBroker, StartBroker
from broker.wire_client import versions
from respool.wire.api_table import Api

INVALID_REQUEST = 42
POLICY_VIOLATION = 44
SECURITY_DISABLED = 54
ANY, READ, WRITE, ALLOW, DENY, MATCH, LITERAL, PREFIXED = 1, 3, 4, 3, 2, 2, 3, 4
TOPIC, CLUSTER = 2, 4

every_version = pytest.mark.parametrize("version", versions(Api.DESCRIBE_ACLS))

FILTER: dict[str, Any] = {
    "resource_type_filter": TOPIC,
    "resource_name_filter": None,
    "pattern_type_filter": ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": ANY,
    "permission_type": ANY,
}
CREATION: dict[str, Any] = {
    "resource_type": TOPIC,
    "resource_name": "rides",
    "resource_pattern_type": LITERAL,
    "principal": "User:alice",
    "host": "*",
    "operation": READ,
    "permission_type": ALLOW,
}


@pytest.fixture
def enforcing(start_broker: StartBroker) -> RunningBroker:
    broker = start_broker(super_users="User:root", acls_max=20)
    broker.enforce()
    return broker


def create(broker: RunningBroker, *acls: dict[str, Any], version: int = 3) -> list[int]:
    creations = [{**CREATION, **one} for one in acls]
    reply = broker.ask(Api.CREATE_ACLS, version, creations=creations)
    return [one.error_code for one in reply.results]


def described(broker: RunningBroker, **fields: Any) -> list[tuple[str, str, int]]:
    """The names, principals and operations of the ACLs that a filter selects."""
    reply = broker.ask(Api.DESCRIBE_ACLS, 3, **{**FILTER, **fields})
    assert reply.error_code == 0, reply
    return sorted(
        (one.resource_name, acl.principal, acl.operation)
        for one in reply.resources
        for acl in one.acls
    )


@every_version
def test_while_acls_are_off_there_are_none(running_broker: RunningBroker, version: int) -> None:
    """An ACL that were accepted would protect nothing."""
    reply = running_broker.ask(Api.DESCRIBE_ACLS, version, **FILTER)
    assert (reply.error_code, reply.resources) == (SECURITY_DISABLED, ())
    assert "ACLs are off" in reply.error_message
    assert create(running_broker, {}, {}, version=version) == [SECURITY_DISABLED] * 2
    deleted = running_broker.ask(Api.DELETE_ACLS, version, filters=[FILTER, FILTER])
    assert [(one.error_code, one.matching_acls) for one in deleted.filter_results] == [
        (SECURITY_DISABLED, ())
    ] * 2


@every_version
def test_an_acl_is_created_shown_and_deleted(enforcing: RunningBroker, version: int) -> None:
    assert create(enforcing, {}, version=version) == [0]
    # Made twice, it is there once.
    assert create(enforcing, {}, {}, version=version) == [0, 0]

    (resource,) = enforcing.ask(Api.DESCRIBE_ACLS, version, **FILTER).resources
    (acl,) = resource.acls
    assert (resource.resource_type, resource.resource_name, resource.pattern_type) == (
        2,
        "rides",
        3,
    )
    assert (acl.principal, acl.host, acl.operation, acl.permission_type) == (
        "User:alice",
        "*",
        3,
        3,
    )

    for expected in (1, 0):
        reply = enforcing.ask(Api.DELETE_ACLS, version, filters=[FILTER])
        (result,) = reply.filter_results
        assert (result.error_code, len(result.matching_acls)) == (0, expected)
    assert described(enforcing) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"principal": "alice"},
        {"principal": "User:"},
        {"principal": "User:al\nice"},
        {"resource_name": ""},
        {"resource_name": "a\0b"},
        {"resource_type": ANY},
        {"resource_type": 99},
        {"resource_type": CLUSTER, "resource_name": "rides"},
        {"operation": ANY},
        {"operation": 0},
        # CLUSTER_ACTION on a topic.
        {"operation": 9},
        {"permission_type": ANY},
        {"resource_pattern_type": MATCH},
        {"host": "elsewhere"},
        {"host": "10.0.0.1/8"},
        {"host": "10.0.0.0/33"},
        {"host": "fe80::1%eth0"},
        {"host": ""},
        {"resource_name": "x" * 2_000},
    ],
    ids=str,
)
def test_an_acl_that_could_never_apply_is_refused_and_the_others_are_made(
    enforcing: RunningBroker, wrong: dict[str, Any]
) -> None:
    assert create(enforcing, wrong, {"operation": WRITE}) == [INVALID_REQUEST, 0]
    assert described(enforcing) == [("rides", "User:alice", WRITE)]


def test_match_is_not_literal(enforcing: RunningBroker) -> None:
    """Trap: MATCH selects what applies to a name; LITERAL and PREFIXED what has the name."""
    create(
        enforcing,
        {"resource_name": "rides"},
        {"resource_name": "ri", "resource_pattern_type": PREFIXED, "principal": "User:bob"},
        {"resource_name": "*", "principal": "User:carol"},
        {"resource_name": "other", "principal": "User:dave"},
    )

    def principals(**fields: Any) -> list[str]:
        return sorted(one[1] for one in described(enforcing, **fields))

    assert principals(resource_name_filter="rides", pattern_type_filter=MATCH) == [
        "User:alice",
        "User:bob",
        "User:carol",
    ]
    assert principals(resource_name_filter="rides", pattern_type_filter=LITERAL) == ["User:alice"]
    assert principals(resource_name_filter="ri", pattern_type_filter=PREFIXED) == ["User:bob"]
    assert principals(resource_name_filter="ri", pattern_type_filter=ANY) == ["User:bob"]
    # Null is anything, and an empty text is nothing.
    assert len(principals()) == 4
    assert principals(principal_filter="") == []
    assert principals(resource_name_filter="") == []


def test_a_filter_deletes_all_that_it_selects_and_nothing_else(enforcing: RunningBroker) -> None:
    create(enforcing, *({"principal": f"User:u{one}"} for one in range(4)), {"operation": WRITE})
    wanted = {**FILTER, "operation": READ}
    (result,) = enforcing.ask(Api.DELETE_ACLS, 3, filters=[wanted]).filter_results
    assert len(result.matching_acls) == 4
    assert described(enforcing) == [("rides", "User:alice", WRITE)]


@pytest.mark.parametrize("wrong", [{"resource_type_filter": 0}, {"operation": 77}], ids=str)
def test_a_filter_of_what_does_not_exist_is_refused(
    enforcing: RunningBroker, wrong: dict[str, Any]
) -> None:
    create(enforcing, {})
    assert enforcing.ask(Api.DESCRIBE_ACLS, 3, **{**FILTER, **wrong}).error_code == INVALID_REQUEST
    (result,) = enforcing.ask(Api.DELETE_ACLS, 3, filters=[{**FILTER, **wrong}]).filter_results
    assert (result.error_code, result.matching_acls) == (INVALID_REQUEST, ())
    assert len(described(enforcing)) == 1


def test_there_are_at_most_so_many_acls(enforcing: RunningBroker) -> None:
    results = create(enforcing, *({"principal": f"User:u{one}"} for one in range(22)))
    assert results == [0] * 20 + [POLICY_VIOLATION] * 2
    assert len(described(enforcing)) == 20


def test_acls_survive_a_restart(enforcing: RunningBroker) -> None:
    create(enforcing, {})
    enforcing.restart()
    assert described(enforcing) == [("rides", "User:alice", READ)]
    enforcing.log_in("User:bob")
    reply = enforcing.ask(Api.DESCRIBE_ACLS, 3, **FILTER)
    assert (reply.error_code, reply.error_message) == (31, "Cluster authorization failed.")
