"""The server side of PLAIN (RFC 4616): `authzid NUL user NUL password`, in one message."""

from collections.abc import Mapping

from respool.model.security.scram_credential import SCRAM_HASHES, User, name_problem, stand_in
from respool.wire.login.mechanism import AuthenticationFailed, CheckPassword

PASSWORD_LENGTH_MAX = 1_024
_PLAIN_AGAINST = max(SCRAM_HASHES)


class PlainMechanism:
    def __init__(self, users: Mapping[str, User], *, secret: bytes) -> None:
        self._users = users
        self._secret = secret
        self.user = ""

    def step(self, message: bytes, *, now_ms: int) -> CheckPassword:
        del now_ms
        parts = message.split(b"\0")
        if len(parts) != 3:
            raise AuthenticationFailed(f"a PLAIN message has 3 parts, not {len(parts)}")
        try:
            authzid, name, password = (part.decode() for part in parts)
        except UnicodeDecodeError:
            raise AuthenticationFailed("a PLAIN message that is not UTF-8") from None
        if not name or not password:
            raise AuthenticationFailed("a PLAIN message without a name or a password")
        self.user = name
        # CVE-2017-12610: the authorization id must not differ.
        if authzid not in ("", name):
            raise AuthenticationFailed("it requests to act as another user")
        if name_problem(name) is not None or len(password) > PASSWORD_LENGTH_MAX:
            raise AuthenticationFailed("an invalid name or password")
        user = self._users.get(name)
        return CheckPassword(
            name=name,
            password=password,
            # A user that does not exist takes as long as one that does.
            credential=(
                stand_in(self._secret, _PLAIN_AGAINST, name)
                if user is None
                else user.any_credential()
            ),
            exists=user is not None,
        )
