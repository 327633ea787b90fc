"""SaslHandshake and SaslAuthenticate, in every version, on a listener without logins."""

import pytest

from broker.running_broker import RunningBroker
from broker.wire_client import versions
from respool.wire.api_table import Api

ILLEGAL_SASL_STATE = 34


@pytest.mark.parametrize("version", versions(Api.SASL_HANDSHAKE))
def test_a_listener_without_logins_has_no_mechanisms(
    running_broker: RunningBroker, version: int
) -> None:
    reply = running_broker.ask(Api.SASL_HANDSHAKE, version, mechanism="PLAIN")

    assert (reply.error_code, reply.mechanisms) == (ILLEGAL_SASL_STATE, ())


@pytest.mark.parametrize("version", versions(Api.SASL_AUTHENTICATE))
def test_credentials_are_refused_with_the_reason(
    running_broker: RunningBroker, version: int
) -> None:
    reply = running_broker.ask(Api.SASL_AUTHENTICATE, version, auth_bytes=b"\0alice\0secret")

    assert (reply.error_code, reply.auth_bytes) == (ILLEGAL_SASL_STATE, b"")
    assert "PLAINTEXT" in reply.error_message
    assert "secret" not in reply.error_message
