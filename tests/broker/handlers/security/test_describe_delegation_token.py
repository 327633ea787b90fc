"""The four APIs of delegation tokens, in every version, on a broker that has none."""

from typing import Any

import pytest

from broker.running_broker import RunningBroker
from broker.wire_client import versions
from respool.wire.api_table import Api

DELEGATION_TOKEN_AUTH_DISABLED = 61
WITHOUT_LIMIT = -1

DETAILS: dict[Api, dict[str, Any]] = {
    Api.CREATE_DELEGATION_TOKEN: {
        "owner_principal_type": None,
        "owner_principal_name": None,
        "renewers": [{"principal_type": "User", "principal_name": "alice"}],
        "max_lifetime": WITHOUT_LIMIT,
    },
    Api.RENEW_DELEGATION_TOKEN: {"hmac": b"secret", "renew_period": WITHOUT_LIMIT},
    Api.EXPIRE_DELEGATION_TOKEN: {"hmac": b"secret", "expiry_time_period": WITHOUT_LIMIT},
    Api.DESCRIBE_DELEGATION_TOKEN: {"owners": None},
}


@pytest.mark.parametrize(
    ("api", "version"), [(api, version) for api in DETAILS for version in versions(api)]
)
def test_there_are_no_delegation_tokens(
    running_broker: RunningBroker, api: Api, version: int
) -> None:
    reply = running_broker.ask(api, version, **DETAILS[api])

    assert reply.error_code == DELEGATION_TOKEN_AUTH_DISABLED
    assert not getattr(reply, "tokens", ())
    assert not getattr(reply, "hmac", b"")
