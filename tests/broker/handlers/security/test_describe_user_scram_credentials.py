"""DescribeUserScramCredentials and AlterUserScramCredentials on a broker without logins."""

from typing import Any

import pytest

from broker.running_broker import RunningBroker
from respool.wire.api_table import Api

UNSUPPORTED_SASL_MECHANISM = 33
RESOURCE_NOT_FOUND = 91
DUPLICATE_RESOURCE = 92
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


def test_no_credential_is_stored(running_broker: RunningBroker) -> None:
    def upsertion(name: str) -> dict[str, Any]:
        secret = {"salt": b"salt", "salted_password": b"secret"}
        return {"name": name, "mechanism": SCRAM_SHA_256, "iterations": 4096, **secret}

    reply = running_broker.ask(
        Api.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        deletions=[{"name": name, "mechanism": SCRAM_SHA_256} for name in ("bob", "eve")],
        upsertions=[upsertion("alice"), upsertion("eve")],
    )

    assert codes(reply) == {
        "alice": UNSUPPORTED_SASL_MECHANISM,
        "bob": RESOURCE_NOT_FOUND,
        "eve": DUPLICATE_RESOURCE,
    }
    after = running_broker.ask(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=[{"name": "alice"}])
    assert codes(after) == {"alice": RESOURCE_NOT_FOUND}
