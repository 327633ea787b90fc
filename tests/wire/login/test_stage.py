"""The stages of a connection's login: a model that knows only what has been proved, and every order of requests."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from respool.wire.login.mechanism import Challenge
from respool.wire.login.stage import IllegalStep, LoginPhase, LoginStage, lifetime_ms

METADATA = 3


class Attempt:
    user = "alice"

    def step(self, message: bytes, *, now_ms: int) -> Challenge:
        del now_ms
        return Challenge(data=message)


def opened(*, expires_ms: int | None = None) -> LoginStage:
    stage = LoginStage()
    stage.on_handshake("PLAIN", Attempt(), now_ms=0)
    stage.on_authenticate()
    stage.on_accepted("alice", expires_ms=expires_ms, now_ms=0)
    return stage


def test_before_login_only_three_apis_are_looked_at() -> None:
    stage = LoginStage()
    for key in range(-2, 200):
        assert (stage.why_not(key, now_ms=0) is None) == (key in (17, 18, 36))


def test_a_login_opens_everything_for_good() -> None:
    stage = opened()
    for key in range(200):
        assert stage.why_not(key, now_ms=10**12) is None
    with pytest.raises(IllegalStep) as caught:
        stage.on_handshake("PLAIN", Attempt(), now_ms=5)
    assert not caught.value.closes
    with pytest.raises(IllegalStep) as caught:
        stage.on_authenticate()
    assert not caught.value.closes
    assert stage.is_open


def test_a_second_handshake_forgets_the_first() -> None:
    stage = LoginStage()
    first, second = Attempt(), Attempt()
    stage.on_handshake("PLAIN", first, now_ms=0)
    stage.on_handshake("SCRAM-SHA-512", second, now_ms=0)
    assert stage.on_authenticate() is second


def test_bytes_before_a_handshake_end_the_connection() -> None:
    stage = LoginStage()
    with pytest.raises(IllegalStep) as caught:
        stage.on_authenticate()
    assert caught.value.closes
    assert stage.why_not(18, now_ms=0) == "its login has failed"


def test_after_its_end_a_login_can_only_be_repeated() -> None:
    stage = opened(expires_ms=5_000)
    assert stage.why_not(METADATA, now_ms=4_999) is None
    assert stage.why_not(METADATA, now_ms=5_000) == "its login has expired"
    assert stage.why_not(17, now_ms=5_000) is None
    stage.on_handshake("PLAIN", Attempt(), now_ms=5_000)
    stage.on_authenticate()
    stage.on_accepted("alice", expires_ms=9_000, now_ms=5_100)
    assert stage.why_not(METADATA, now_ms=5_100) is None


def test_a_login_is_never_repeated_as_somebody_else() -> None:
    stage = opened(expires_ms=5_000)
    stage.on_handshake("PLAIN", Attempt(), now_ms=2_000)
    with pytest.raises(IllegalStep, match="somebody else"):
        stage.on_accepted("bob", expires_ms=9_000, now_ms=2_000)
    assert stage.principal == "alice"
    assert not stage.is_open


def test_a_login_is_never_repeated_by_another_mechanism_or_too_soon() -> None:
    stage = opened(expires_ms=5_000)
    with pytest.raises(IllegalStep, match="mechanism"):
        stage.on_handshake("SCRAM-SHA-512", Attempt(), now_ms=2_000)
    assert not stage.is_open
    stage = opened(expires_ms=5_000)
    with pytest.raises(IllegalStep, match="once a second"):
        stage.on_handshake("PLAIN", Attempt(), now_ms=999)
    assert not stage.is_open


def test_a_lifetime_is_never_zero() -> None:
    assert lifetime_ms(now_ms=0, credential_expires_ms=None, session_max_ms=0) is None
    assert lifetime_ms(now_ms=0, credential_expires_ms=None, session_max_ms=7) == 7
    assert lifetime_ms(now_ms=10, credential_expires_ms=15, session_max_ms=7) == 5
    assert lifetime_ms(now_ms=10, credential_expires_ms=10, session_max_ms=0) == 1
    assert lifetime_ms(now_ms=10, credential_expires_ms=90, session_max_ms=7) == 7


class Logins(RuleBasedStateMachine):
    """Whatever is asked in whatever order: nothing is served that a login has not opened."""

    def __init__(self) -> None:
        super().__init__()
        self.stage = LoginStage()
        self.now_ms = 0
        # What a client has proved, and until when.
        self.proved: str | None = None
        self.until: int | None = None
        self.is_dead = False
        self.wanted: str | None = None

    @rule(ms=st.sampled_from([0, 1, 500, 1_000, 5_000]))
    def wait(self, ms: int) -> None:
        self.now_ms += ms

    @rule(mechanism=st.sampled_from(["PLAIN", "SCRAM-SHA-512"]))
    def handshake(self, mechanism: str) -> None:
        if self.stage.why_not(17, now_ms=self.now_ms) is not None:
            return
        try:
            self.stage.on_handshake(mechanism, Attempt(), now_ms=self.now_ms)
            self.wanted = mechanism
        except IllegalStep as error:
            self.is_dead |= error.closes

    @rule(
        user=st.sampled_from(["alice", "bob"]),
        is_right=st.booleans(),
        lasts=st.sampled_from([None, 3_000]),
    )
    def authenticate(self, user: str, is_right: bool, lasts: int | None) -> None:
        if self.stage.why_not(36, now_ms=self.now_ms) is not None:
            return
        try:
            self.stage.on_authenticate()
            if not is_right:
                self.stage.fail()
                self.is_dead = True
                return
            until = None if lasts is None else self.now_ms + lasts
            self.stage.on_accepted(user, expires_ms=until, now_ms=self.now_ms)
            assert self.proved in (None, user)
            self.proved, self.until = user, until
        except IllegalStep as error:
            self.is_dead |= error.closes

    @precondition(lambda self: self.is_dead)
    @rule(key=st.integers(0, 100))
    def nothing_is_served_after_a_failure(self, key: int) -> None:
        assert self.stage.why_not(key, now_ms=self.now_ms) is not None

    @invariant()
    def only_what_was_proved_is_served(self) -> None:
        is_served = self.stage.why_not(METADATA, now_ms=self.now_ms) is None
        is_valid = self.until is None or self.now_ms < self.until
        if is_served:
            assert self.proved is not None
            assert is_valid
            assert not self.is_dead
        if self.proved is not None and self.stage.phase is LoginPhase.OPEN and is_valid:
            assert is_served
        assert self.stage.principal == self.proved


TestLogins = Logins.TestCase
TestLogins.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
