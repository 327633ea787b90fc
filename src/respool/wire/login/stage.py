"""Which requests a connection may send at each stage of its login. Pure.

```
            17                36 (several)               17, if the login has an end
 NEW ----------> HANDSHAKEN ---------------> OPEN ---------------------> HANDSHAKEN ...
                     ^  | 17: start over       |  lifetime over: only 17 and 36
                     +--+                      +------------------------> close
```
Before login only ApiVersions, SaslHandshake and SaslAuthenticate are looked at, by their number, before anything else
of the request is parsed.
"""

from dataclasses import dataclass
from enum import Enum, auto

from respool.wire.login.mechanism import Mechanism

PRODUCE, API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 0, 18, 17, 36
BEFORE_LOGIN = frozenset({API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE})
# A session is re-authenticated at most once in this time.
REAUTHENTICATION_INTERVAL_MS = 1_000


class LoginPhase(Enum):
    NEW = auto()
    HANDSHAKEN = auto()
    OPEN = auto()
    FAILED = auto()


class IllegalStep(Exception):
    """A step out of order. `closes`: the connection ends after the reply."""

    def __init__(self, why: str, *, closes: bool) -> None:
        super().__init__(why)
        self.closes = closes


@dataclass(slots=True, kw_only=True)
class LoginStage:
    """The login of one connection.

    Invariant: `principal` and `mechanism` never change once they are set.
    """

    phase: LoginPhase = LoginPhase.NEW
    # The login that is under way.
    attempt: Mechanism | None = None
    # The principal of the first login; later ones must have the same.
    principal: str | None = None
    mechanism: str = ""
    # When the session expires, on the monotonic clock; None: never.
    expires_ms: int | None = None
    _wanted: str = ""
    _opened_ms: int = 0

    @property
    def is_open(self) -> bool:
        """True if the client has logged in, also while it logs in again."""
        return self.principal is not None and self.phase is not LoginPhase.FAILED

    def why_not(self, key: int, *, now_ms: int) -> str | None:
        """Why the connection must be closed instead of serving this API; None: it may be served."""
        why = None
        if self.phase is LoginPhase.FAILED:
            why = "its login has failed"
        elif self.principal is None:
            if key not in BEFORE_LOGIN:
                why = f"it asks for api key {key} before it has logged in"
        elif key not in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
            if self.expires_ms is not None and now_ms >= self.expires_ms:
                why = "its login has expired"
            elif self.phase is LoginPhase.HANDSHAKEN:
                why = f"it asks for api key {key} in the middle of a login"
        return why

    def on_handshake(self, mechanism: str, attempt: Mechanism, *, now_ms: int) -> None:
        """SaslHandshake with a mechanism that is offered. It discards an earlier, unfinished login.

        Raises:
            IllegalStep
        """
        if self.principal is not None:
            self._check_again(mechanism, now_ms)
        self._wanted = mechanism
        self.attempt = attempt
        self.phase = LoginPhase.HANDSHAKEN

    def _check_again(self, mechanism: str, now_ms: int) -> None:
        if self.expires_ms is None:
            raise IllegalStep("the login has no end, so it cannot be repeated", closes=False)
        if mechanism != self.mechanism:
            self.fail()
            raise IllegalStep("a login cannot be repeated by another mechanism", closes=True)
        if now_ms - self._opened_ms < REAUTHENTICATION_INTERVAL_MS:
            self.fail()
            raise IllegalStep("a login is repeated at most once a second", closes=True)

    def on_authenticate(self) -> Mechanism:
        """SaslAuthenticate: the attempt that takes its bytes.

        Raises:
            IllegalStep
        """
        if self.phase is not LoginPhase.HANDSHAKEN or self.attempt is None:
            is_open = self.is_open
            if not is_open:
                self.fail()
            raise IllegalStep("SaslHandshake comes first", closes=not is_open)
        return self.attempt

    def on_accepted(self, principal: str, *, expires_ms: int | None, now_ms: int) -> None:
        """The attempt has succeeded.

        Raises:
            IllegalStep: the principal differs from the one of the connection's first login.
        """
        assert self.phase is LoginPhase.HANDSHAKEN
        if self.principal is not None and principal != self.principal:
            self.fail()
            raise IllegalStep("a login cannot be repeated as somebody else", closes=True)
        self.principal, self.mechanism = principal, self._wanted
        self.expires_ms, self._opened_ms = expires_ms, now_ms
        self.attempt = None
        self.phase = LoginPhase.OPEN

    def fail(self) -> None:
        """No request is served any more."""
        self.phase, self.attempt = LoginPhase.FAILED, None


def lifetime_ms(
    *, now_ms: int, credential_expires_ms: int | None, session_max_ms: int
) -> int | None:
    """The remaining lifetime of a login made now; None: unlimited.

    It is at least 1: clients take 0 for "for ever". A credential that has expired must be refused before.
    """
    ends = [session_max_ms] if session_max_ms > 0 else []
    if credential_expires_ms is not None:
        ends.append(credential_expires_ms - now_ms)
    return max(1, min(ends)) if ends else None
