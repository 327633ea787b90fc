"""OAUTHBEARER: the message's form, and a refusal that is not mistaken for a success."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.wire.login.mechanism import Accepted, AuthenticationFailed, Challenge
from respool.wire.login.oauthbearer import OAuthBearerMechanism, VerifiedToken


def check(token: str, now_ms: int) -> VerifiedToken:
    if token != "good":
        raise AuthenticationFailed("not good")
    return VerifiedToken("alice", now_ms + 60_000)


def step(message: bytes) -> object:
    return OAuthBearerMechanism(check).step(message, now_ms=1_000)


@pytest.mark.parametrize(
    "message",
    [
        b"n,,\x01auth=Bearer good\x01\x01",
        b"n,,\x01auth=bearer good\x01\x01",
        b"n,a=alice,\x01auth=Bearer good\x01traceId=7\x01\x01",
    ],
)
def test_a_token_logs_in_until_it_expires(message: bytes) -> None:
    assert step(message) == Accepted(name="alice", expires_ms=61_000)


def test_a_refusal_is_no_success_and_ends_with_the_clients_acknowledgement() -> None:
    side = OAuthBearerMechanism(check)
    assert side.step(b"n,,\x01auth=Bearer bad\x01\x01", now_ms=0) == Challenge(
        data=b'{"status":"invalid_token"}'
    )
    with pytest.raises(AuthenticationFailed, match="not good"):
        side.step(b"\x01", now_ms=0)


def test_a_second_token_after_a_refusal_is_not_looked_at() -> None:
    side = OAuthBearerMechanism(check)
    side.step(b"n,,\x01auth=Bearer bad\x01\x01", now_ms=0)
    with pytest.raises(AuthenticationFailed, match="acknowledge"):
        side.step(b"n,,\x01auth=Bearer good\x01\x01", now_ms=0)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,auth=Bearer good\x01\x01",
        b"n,,\x01auth=Bearer good\x01",
        b"n,,\x01auth=Basic good\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer good\x01auth=Bearer bad\x01\x01",
        b"n,,\x01other=1\x01\x01",
        b"n,a=bob,\x01auth=Bearer good\x01\x01",
        b"y,,\x01auth=Bearer good\x01\x01",
        b"n,,\x01auth=Bearer good\x01\x01more",
        b"n,,\x01auth=Bearer go\xffod\x01\x01",
    ],
)
def test_malformed_messages_are_refused(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        step(message)


@given(st.binary(max_size=60))
def test_no_bytes_let_anybody_in(message: bytes) -> None:
    try:
        found = step(message)
    except AuthenticationFailed:
        return
    assert isinstance(found, Challenge)
