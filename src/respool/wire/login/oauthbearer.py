"""The server side of OAUTHBEARER (RFC 7628): one message with a token, which a `TokenCheck` verifies.

client   n,[a=user],^Aauth=Bearer TOKEN[^Akey=value]...^A^A
server   (empty), or of a refusal {"status":"invalid_token"}, to which the client answers ^A
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from respool.wire.login.mechanism import Accepted, AuthenticationFailed, Challenge, Step

_MESSAGE = re.compile(r"n,(?:a=([^,\x01]*))?,\x01((?:[A-Za-z]+=[\x09\x0a\x0d\x20-\x7e]*\x01)+)\x01")
_REFUSAL = b'{"status":"invalid_token"}'
_ACKNOWLEDGED = b"\x01"
# Extensions with this name would be ambiguous (RFC 7628, 3.1).
_AUTH = "auth"


class VerifiedToken(NamedTuple):
    name: str
    expires_ms: int


# Takes the compact token and the wall clock. Raises AuthenticationFailed.
TokenCheck = Callable[[str, int], VerifiedToken]


class OAuthBearerMechanism:
    def __init__(self, check: TokenCheck) -> None:
        self._check = check
        self.user = ""
        # Why the token was refused, until the client has acknowledged it.
        self._refusal: AuthenticationFailed | None = None

    def step(self, message: bytes, *, now_ms: int) -> Step:
        if self._refusal is not None:
            if message != _ACKNOWLEDGED:
                raise AuthenticationFailed(f"{self._refusal}; and it did not acknowledge that")
            raise self._refusal
        authzid, token = _parse(message)
        try:
            verified = self._check(token, now_ms)
        except AuthenticationFailed as refusal:
            # The reply has no error code, but the login is not complete.
            self._refusal = refusal
            return Challenge(data=_REFUSAL)
        self.user = verified.name
        if authzid and authzid != verified.name:
            raise AuthenticationFailed("it requests to act as another user")
        return Accepted(name=verified.name, expires_ms=verified.expires_ms)


def _parse(message: bytes) -> tuple[str, str]:
    """The authorization id and the token of a client's first message."""
    try:
        found = _MESSAGE.fullmatch(message.decode("ascii"))
    except UnicodeDecodeError:
        found = None
    if found is None:
        raise AuthenticationFailed("not a message of OAUTHBEARER")
    pairs = [one.partition("=") for one in found[2].split("\x01") if one]
    tokens = [value for name, _, value in pairs if name == _AUTH]
    if len(tokens) != 1:
        raise AuthenticationFailed("not one token, but several or none")
    scheme, _, token = tokens[0].partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise AuthenticationFailed("its credential is not a bearer token")
    return found[1] or "", token.strip()
