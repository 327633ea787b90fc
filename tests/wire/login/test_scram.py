"""SCRAM: against the RFCs' own examples, our client, and messages that are wrong in every place."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.client.kafka.errors import LoginRefused
from respool.client.kafka.sasl import ScramLogin
from respool.model.security.scram_credential import ScramCredential, User, stand_in
from respool.wire.login.mechanism import Accepted, AuthenticationFailed, Challenge, Step
from respool.wire.login.scram import ScramMechanism, ScramToken, unescape

SECRET = b"of the cluster"
SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"


def user(name: str, password: str, *, iterations: int = 4_096) -> User:
    made = {
        one: ScramCredential.from_password(one, password, salt=b"salted", iterations=iterations)
        for one in (SHA_256, SHA_512)
    }
    return User(name=name, credentials=made)


USERS = {name: user(name, "wonderland") for name in ("alice", "a,b=c", "=2C")}


def data_of(step: Step) -> bytes:
    assert isinstance(step, Challenge | Accepted)
    return step.data


def server(
    mechanism: str = SHA_512, *, users: dict[str, User] | None = None, **more: object
) -> ScramMechanism:
    return ScramMechanism(
        mechanism,
        USERS if users is None else users,
        secret=SECRET,
        nonce="ours",
        **more,  # type: ignore[arg-type]
    )


def converse(side: ScramMechanism, name: str, password: str, mechanism: str = SHA_512) -> Accepted:
    client = ScramLogin(mechanism, name, password, nonce="theirs")
    first = side.step(client.begin(), now_ms=0)
    assert isinstance(first, Challenge)
    final = client.answer(first.data)
    assert final is not None
    accepted = side.step(final, now_ms=0)
    assert isinstance(accepted, Accepted)
    assert client.answer(accepted.data) is None
    return accepted


def test_the_example_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    credential = ScramCredential.from_password(SHA_256, "pencil", salt=salt, iterations=4_096)
    side = ScramMechanism(
        SHA_256,
        {"user": User(name="user", credentials={SHA_256: credential})},
        secret=SECRET,
        nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
    )
    first = side.step(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO", now_ms=0)
    assert first == Challenge(
        data=b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    accepted = side.step(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        now_ms=0,
    )
    assert accepted == Accepted(name="user", data=b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
@pytest.mark.parametrize("name", sorted(USERS))
def test_the_right_password_lets_in(mechanism: str, name: str) -> None:
    assert converse(server(mechanism), name, "wonderland", mechanism).name == name


def test_a_wrong_password_and_an_unknown_user_fail_alike() -> None:
    for name in ("alice", "bob"):
        side = server()
        client = ScramLogin(SHA_512, name, "guess", nonce="theirs")
        first = side.step(client.begin(), now_ms=0)
        final = client.answer(data_of(first)) or b""
        with pytest.raises(AuthenticationFailed):
            side.step(final, now_ms=0)


def test_an_unknown_user_has_the_same_salt_everywhere_and_always() -> None:
    def salt_of(name: str, mechanism: str = SHA_512) -> bytes:
        return data_of(server(mechanism, users={}).step(f"n,,n={name},r=x".encode(), now_ms=0))

    assert salt_of("bob") == salt_of("bob")
    assert salt_of("bob") != salt_of("carol")
    assert salt_of("bob") != salt_of("bob", SHA_256)
    assert b",i=16384" in salt_of("bob")
    assert len(stand_in(SECRET, SHA_256, "bob").stored_key) == 32


def test_a_user_without_this_mechanism_is_like_an_unknown_one() -> None:
    only = {"alice": User(name="alice", credentials={SHA_256: USERS["alice"].credentials[SHA_256]})}
    with pytest.raises(AuthenticationFailed, match="no such user"):
        converse(server(SHA_512, users=only), "alice", "wonderland")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n=alice,r=x",
        b"y,,n=alice,r=x",
        b"p=tls-unique,,n=alice,r=x",
        b"n,,n=alice",
        b"n,,n=alice,r=",
        b"n,,n=,r=x",
        b"n,,r=x,n=alice",
        b"n,,m=ext,n=alice,r=x",
        b"n,a=bob,n=alice,r=x",
        b"n,,n=al=ice,r=x",
        b"n,,n=al=2cice,r=x",
        b"n,,n=al\0ice,r=x",
        b"n,,n=alice,r=x y",
        b"n,,n=alice,r=\xff",
        "n,,n=älice,r=x".encode(),
        b"n,,n=" + b"a" * 256 + b",r=x",
        b"n,,n=alice,r=" + b"x" * 513,
        b"n,,n=alice,r=x," + b"a=b," * 2_000,
    ],
)
def test_malformed_first_messages_are_refused(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        server().step(message, now_ms=0)


def final_of(**changed: str) -> tuple[ScramMechanism, bytes]:
    side = server()
    client = ScramLogin(SHA_512, "alice", "wonderland", nonce="theirs")
    first = side.step(client.begin(), now_ms=0)
    final = (client.answer(data_of(first)) or b"").decode()
    fields = dict(one.split("=", 1) for one in final.split(",")) | changed
    return side, ",".join(f"{name}={value}" for name, value in fields.items()).encode()


@pytest.mark.parametrize(
    "changed",
    [
        # CVE-2024-56128: the nonce is compared as a whole.
        {"r": "theirs"},
        {"r": "theirsour"},
        {"r": "ours"},
        {"r": "theirsours2"},
        {"r": ""},
        {"c": "eSws"},
        {"c": ""},
        {"c": "biws="},
        {"p": ""},
        {"p": base64.b64encode(bytes(64)).decode()},
        {"p": base64.b64encode(bytes(65)).decode()},
        {"p": "%%%"},
        {"x": "extension"},
    ],
)
def test_a_wrong_final_message_is_refused(changed: dict[str, str]) -> None:
    side, message = final_of(**changed)
    with pytest.raises(AuthenticationFailed):
        side.step(message, now_ms=0)


def test_the_final_message_of_another_conversation_is_refused() -> None:
    _, message = final_of()
    side = ScramMechanism(SHA_512, USERS, secret=SECRET, nonce="other")
    side.step(b"n,,n=alice,r=theirs", now_ms=0)
    with pytest.raises(AuthenticationFailed, match="nonce"):
        side.step(message, now_ms=0)


def test_escapes_are_undone_once() -> None:
    assert unescape("a=2Cb=3Dc") == "a,b=c"
    assert unescape("=3D2C") == "=2C"
    assert unescape("=2c") is None
    assert unescape("=") is None


TOKEN = ScramToken(
    credential=ScramCredential.from_password(SHA_512, "aG1hYw==", salt=b"s", iterations=4_096),
    owner="alice",
    expires_ms=5_000,
)


def token_login(at_ms: int, *, extension: str = ",tokenauth=true") -> Accepted:
    side = server(find_token=lambda name: TOKEN if name == "t-1" else None)
    client = ScramLogin(SHA_512, "t-1", "aG1hYw==", nonce="theirs")
    client._first += extension
    first = side.step(client.begin(), now_ms=at_ms)
    final = client.answer(data_of(first)) or b""
    accepted = side.step(final, now_ms=at_ms)
    assert isinstance(accepted, Accepted)
    return accepted


def test_a_delegation_token_logs_in_as_its_owner_until_it_expires() -> None:
    accepted = token_login(4_999)
    assert (accepted.name, accepted.token_id, accepted.expires_ms) == ("alice", "t-1", 5_000)
    with pytest.raises(AuthenticationFailed, match="expired"):
        token_login(5_000)
    with pytest.raises(AuthenticationFailed):
        token_login(0, extension="")
    with pytest.raises(AuthenticationFailed):
        token_login(0, extension=",tokenauth=True")


@given(st.lists(st.binary(max_size=80), min_size=1, max_size=3))
def test_no_bytes_let_anybody_in(messages: list[bytes]) -> None:
    side = server()
    try:
        for message in messages:
            assert isinstance(side.step(message, now_ms=0), Challenge)
    except AuthenticationFailed:
        pass


@given(st.integers(0, 1_000), st.integers(1, 255), st.booleans())
def test_no_changed_byte_lets_anybody_in(at: int, mask: int, in_first: bool) -> None:
    def damaged(message: bytes) -> bytes:
        place = at % len(message)
        return message[:place] + bytes([message[place] ^ mask]) + message[place + 1 :]

    side = server()
    client = ScramLogin(SHA_512, "alice", "wonderland", nonce="theirs")
    first = client.begin()
    try:
        challenge = side.step(damaged(first) if in_first else first, now_ms=0)
        final = client.answer(data_of(challenge)) or b""
        step = side.step(final if in_first else damaged(final), now_ms=0)
    except (AuthenticationFailed, LoginRefused):
        return
    raise AssertionError(step)
