"""The interface of a SASL mechanism on the server: messages in, steps out. No I/O, no clock, no randomness."""

from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from respool.model.security.scram_credential import ScramCredential


class AuthenticationFailed(Exception):
    """The client is refused. The text is for the log: clients get the same text whatever the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """The login is not complete: send this to the client."""

    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The client is `name`."""

    name: str
    data: bytes = field(default=b"", repr=False)
    # The delegation token that it logged in with.
    token_id: str | None = None
    # When its credential expires, in milliseconds since the epoch; None: never.
    expires_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPassword:
    """The client is `name` if the password matches, which takes milliseconds to find out."""

    name: str
    password: str = field(repr=False)
    credential: ScramCredential
    # False: there is no such user; the check only takes the same time as a real one.
    exists: bool

    def is_right(self) -> bool:
        """Call it off the event loop."""
        return self.credential.has_password(self.password) and self.exists


Step: TypeAlias = Challenge | Accepted | CheckPassword


class Mechanism(Protocol):
    """One login attempt. After `AuthenticationFailed`, `Accepted` or `CheckPassword` it takes no further message."""

    @property
    def user(self) -> str:
        """The name that the client claims, for the log; empty until it is known."""
        ...

    def step(self, message: bytes, *, now_ms: int) -> Step:
        """
        Raises:
            AuthenticationFailed: the client is refused.
        """
        ...
