"""PLAIN: three parts, nobody else's name, and the same work for users that do not exist."""

import pytest

from respool.model.security.scram_credential import ITERATIONS_MAX, ScramCredential, User
from respool.wire.login.mechanism import AuthenticationFailed
from respool.wire.login.plain import PlainMechanism

SECRET = b"of the cluster"
CREDENTIAL = ScramCredential.from_password(
    "SCRAM-SHA-512", "wonderland", salt=b"salt", iterations=4_096
)
USERS = {"alice": User(name="alice", credentials={"SCRAM-SHA-512": CREDENTIAL})}


def check(message: bytes) -> bool:
    return PlainMechanism(USERS, secret=SECRET).step(message, now_ms=0).is_right()


def test_the_password_of_the_user_lets_in() -> None:
    assert check(b"\0alice\0wonderland")
    assert check(b"alice\0alice\0wonderland")
    assert not check(b"\0alice\0Wonderland")
    assert not check(b"\0bob\0wonderland")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"alice",
        b"\0alice",
        b"\0alice\0",
        b"\0\0wonderland",
        b"\0alice\0wonderland\0",
        b"\0alice\0wonder\0land",
        b"\0al\xff\0wonderland",
        b"\0a\nb\0wonderland",
        "\0älice\0wonderland".encode(),
        b"\0" + b"a" * 256 + b"\0wonderland",
        b"\0alice\0" + b"x" * 1_025,
    ],
)
def test_malformed_messages_are_refused(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        PlainMechanism(USERS, secret=SECRET).step(message, now_ms=0)


def test_nobody_acts_as_another_user() -> None:
    """CVE-2017-12610."""
    with pytest.raises(AuthenticationFailed, match="another user"):
        PlainMechanism(USERS, secret=SECRET).step(b"bob\0alice\0wonderland", now_ms=0)


def test_an_unknown_user_is_checked_like_a_known_one() -> None:
    step = PlainMechanism({}, secret=SECRET).step(b"\0alice\0wonderland", now_ms=0)
    assert step.credential.iterations == ITERATIONS_MAX
    assert not step.is_right()


def test_no_secret_is_in_a_representation() -> None:
    step = PlainMechanism(USERS, secret=SECRET).step(b"\0alice\0wonderland", now_ms=0)
    assert "wonderland" not in repr(step)
    assert repr(CREDENTIAL) == "ScramCredential(mechanism='SCRAM-SHA-512', iterations=4096)"
