"""SCRAM as RFC 7677 has it, and brokers that are not who they should be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.client.kafka.connection import Connection
from respool.client.kafka.errors import LoginRefused
from respool.client.kafka.sasl import ITERATIONS_MAX, ScramLogin, authenticate
from respool.client.kafka.security import Login
from respool.client.kafka.transport import LinkSettings
from respool.testing import Broker
from support.secured_gate import HASHES, ScramServer

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
# Names may have what separates fields; a zero byte is refused before.
words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)


def login(password: str = "pencil") -> ScramLogin:
    return ScramLogin("SCRAM-SHA-256", "user", password, nonce=NONCE)


def test_the_conversation_of_the_rfc() -> None:
    client = login()
    assert client.begin() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert client.answer(SERVER_FIRST) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert client.answer(SERVER_FINAL) is None


@given(
    mechanism=st.sampled_from(sorted(HASHES)),
    user=words,
    password=words,
    other=st.none() | words,
)
def test_whoever_knows_the_password_comes_in_and_nobody_else(
    mechanism: str, user: str, password: str, other: str | None
) -> None:
    other = other or password
    server = ScramServer(HASHES[mechanism], {user: password})
    client = ScramLogin(mechanism, user, other)
    said, _ = server.answer(client.begin())
    assert said is not None
    proof = client.answer(said)
    assert proof is not None
    said, is_in = server.answer(proof)
    assert is_in == (password == other)
    assert server.user == user
    if said is not None:
        assert client.answer(said) is None


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"r=other,s=W22Z,i=4096", "did not take up the number"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22Z,i=4096", "did not take up the number"),
        (SERVER_FIRST.replace(b"4096", b"4095"), "asks for 4095 iterations"),
        (SERVER_FIRST.replace(b"4096", str(ITERATIONS_MAX + 1).encode()), "iterations"),
        (SERVER_FIRST.replace(b"4096", b" 4096"), "iterations"),
        (SERVER_FIRST.replace(b"4096", b"9" * 5_000), "asks for 9{20} iterations"),
        (SERVER_FIRST.replace(b",i=4096", b""), "asks for no iterations"),
        (SERVER_FIRST.replace(b"W22ZaJ0SNY7soEsUEjb6gQ==", b"%%%"), "no salt"),
        (b"e=unknown-user", "the broker says: unknown-user"),
        (b"m=ext," + SERVER_FIRST, "an extension"),
        (b"nonsense", "no SCRAM"),
        (b"\xff", "no SCRAM"),
        (b"", "no SCRAM"),
    ],
)
def test_a_broker_that_says_something_else_is_refused(said: bytes, why: str) -> None:
    client = login()
    client.begin()
    with pytest.raises(LoginRefused, match=why):
        client.answer(said)


@pytest.mark.parametrize("said", [b"v=", b"v=AAAA", b"e=other-error", b"x=1", SERVER_FINAL[:-4]])
def test_a_broker_that_does_not_know_the_password_is_refused(said: bytes) -> None:
    client = login()
    client.begin()
    client.answer(SERVER_FIRST)
    with pytest.raises(LoginRefused):
        client.answer(said)


@given(st.binary(max_size=80), st.booleans())
def test_whatever_a_broker_says_ends_in_a_refusal(said: bytes, is_last: bool) -> None:
    client = login()
    client.begin()
    if is_last:
        client.answer(SERVER_FIRST)
    with pytest.raises(LoginRefused):
        client.answer(said)


def test_no_password_is_sent_to_a_broker_without_logins() -> None:
    with (
        Broker() as broker,
        Connection((broker.host, broker.port), LinkSettings()) as connection,
    ):
        connection.open()
        login = Login(mechanism="PLAIN", username="etl", password="secret")
        with pytest.raises(LoginRefused, match="the broker has none on this port"):
            authenticate(connection, login)
