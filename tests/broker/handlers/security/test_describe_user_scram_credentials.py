"""DescribeUserScramCredentials and AlterUserScramCredentials by requests."""

from typing import Any

import pytest

from broker.running_broker import RunningBroker
from respool.wire.api_table import Api

UNSUPPORTED_SASL_MECHANISM = 33
RESOURCE_NOT_FOUND = 91
DUPLICATE_RESOURCE = 92
UNACCEPTABLE_CREDENTIAL = 93
SCRAM_SHA_256 = 1


def codes(reply: Any) -> dict[str, int]:
    assert all(one.error_message for one in reply.results)
    return {one.user: one.error_code for one in reply.results}


@pytest.mark.parametrize("users", [None, []])
def test_of_all_users_there_are_none(running_broker: RunningBroker, users: list[Any]) -> None:
    reply = running_broker.ask(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=users)

    assert (reply.error_code, reply.error_message, reply.results) == (0, None, ())


def test_every_user_that_is_named_is_answered(running_broker: RunningBroker) -> None:
    users = [{"name": name} for name in ("alice", "bob", "alice")]
    reply = running_broker.ask(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=users)

    assert reply.error_code == 0
    assert codes(reply) == {"alice": DUPLICATE_RESOURCE, "bob": RESOURCE_NOT_FOUND}


def upsertion(name: str, **changed: Any) -> dict[str, Any]:
    secret = {"salt": b"salt", "salted_password": b"secret"}
    made = {"name": name, "mechanism": SCRAM_SHA_256, "iterations": 4096, **secret}
    return made | changed


def test_each_user_is_changed_or_refused_by_itself(running_broker: RunningBroker) -> None:
    reply = running_broker.ask(
        Api.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        deletions=[{"name": name, "mechanism": SCRAM_SHA_256} for name in ("bob", "eve")],
        upsertions=[
            upsertion("alice"),
            upsertion("eve"),
            upsertion("few", iterations=4_095),
            upsertion("many", iterations=16_385),
            upsertion("", iterations=4_096),
            upsertion("m\u00fcller"),
            upsertion("odd", mechanism=9),
            upsertion("saltless", salt=b""),
        ],
    )

    assert {one.user: one.error_code for one in reply.results} == {
        "alice": 0,
        "bob": RESOURCE_NOT_FOUND,
        "eve": DUPLICATE_RESOURCE,
        "few": UNACCEPTABLE_CREDENTIAL,
        "many": UNACCEPTABLE_CREDENTIAL,
        "": UNACCEPTABLE_CREDENTIAL,
        "m\u00fcller": UNACCEPTABLE_CREDENTIAL,
        "odd": UNSUPPORTED_SASL_MECHANISM,
        "saltless": UNACCEPTABLE_CREDENTIAL,
    }
    after = running_broker.ask(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=None)
    [alice] = after.results
    assert (alice.user, alice.error_code) == ("alice", 0)
    [credential] = alice.credential_infos
    assert (credential.mechanism, credential.iterations) == (SCRAM_SHA_256, 4_096)
    assert b"secret" not in bytes(str(after), "utf-8")


def test_the_last_credential_goes_with_its_user(running_broker: RunningBroker) -> None:
    running_broker.ask(
        Api.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=[], upsertions=[upsertion("alice")]
    )
    assert "alice" in running_broker.broker.image.users
    running_broker.ask(
        Api.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        deletions=[{"name": "alice", "mechanism": SCRAM_SHA_256}],
        upsertions=[],
    )
    assert not running_broker.broker.image.users
