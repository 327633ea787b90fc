"""Principals and sessions: what a request says about its sender."""

import pytest

from respool.model.errors import InvalidRequest
from respool.model.security.principal import (
    ANONYMOUS,
    AuthenticationMethod,
    ClientSession,
    Principal,
)


def test_a_principal_is_written_as_in_kafka() -> None:
    assert str(Principal("alice")) == "User:alice"
    assert str(ANONYMOUS) == "User:ANONYMOUS"
    assert Principal.parse("User:CN=a,O=b:c") == Principal("CN=a,O=b:c")
    assert Principal.parse("Group:staff") == Principal("staff", "Group")


@pytest.mark.parametrize("text", ["", "alice", ":alice", "User:", ":"])
def test_text_that_is_no_principal_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="not a principal"):
        Principal.parse(text)


def test_a_session_without_a_login_is_anonymous() -> None:
    session = ClientSession(host="10.0.0.1", listener="client")
    assert session.principal is ANONYMOUS
    assert not session.is_authenticated
    assert ClientSession(method=AuthenticationMethod.TLS).is_authenticated
