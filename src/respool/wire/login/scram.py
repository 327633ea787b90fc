"""The server side of SCRAM (RFC 5802, 7677), with Kafka's extension for delegation tokens (KIP-48).

    client   n,,n=user,r=NONCE[,tokenauth=true]
    server   r=NONCE+ours,s=SALT,i=ITERATIONS
    client   c=biws,r=NONCE+ours,p=PROOF
    server   v=SIGNATURE

An unknown user gets a salt, too, and is refused at the end, just like a wrong password.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from respool.model.security.scram_credential import (
    SCRAM_HASHES,
    ScramCredential,
    User,
    name_problem,
    stand_in,
)
from respool.wire.login.mechanism import Accepted, AuthenticationFailed, Challenge, Step

MESSAGE_BYTES_MAX = 4_096
# Printable ASCII without the comma.
_NONCE = re.compile(r"[\x21-\x2b\x2d-\x7e]{1,512}")
_FIRST = re.compile(r"n,(?:a=([^,]*))?,(n=([^,]*),r=([^,]*)((?:,[A-Za-z]+=[^,]*)*))")
_FINAL = re.compile(r"(c=([^,]*),r=([^,]*)(?:,[A-Za-z]+=[^,]*)*),p=([^,]*)")


class ScramToken(NamedTuple):
    """The delegation token that the client logs in with."""

    credential: ScramCredential
    owner: str
    expires_ms: int


class ScramMechanism:
    def __init__(
        self,
        mechanism: str,
        users: Mapping[str, User],
        *,
        secret: bytes,
        nonce: str,
        find_token: Callable[[str], ScramToken | None] = lambda _: None,
    ) -> None:
        """`nonce` is random and never used again; `find_token` gets a token's id."""
        assert _NONCE.fullmatch(nonce)
        self._mechanism = mechanism
        self._hash = SCRAM_HASHES[mechanism]
        self._users = users
        self._secret = secret
        self._own_nonce = nonce
        self._find_token = find_token
        self.user = ""
        # Set by the first message.
        self._signed = ""
        self._nonce = ""
        self._header = ""
        self._credential: ScramCredential | None = None
        self._exists = False
        self._token: ScramToken | None = None

    def step(self, message: bytes, *, now_ms: int) -> Step:
        if len(message) > MESSAGE_BYTES_MAX:
            raise AuthenticationFailed(f"a SCRAM message of {len(message)} bytes")
        try:
            text = message.decode()
        except UnicodeDecodeError:
            raise AuthenticationFailed("a SCRAM message that is not UTF-8") from None
        if self._credential is None:
            return self._challenge(text)
        return self._verify(text, self._credential, now_ms)

    def _challenge(self, text: str) -> Challenge:
        found = _FIRST.fullmatch(text)
        if found is None:
            raise AuthenticationFailed("not the first message of SCRAM without channel binding")
        authzid, bare, escaped, nonce, extensions = found.groups()
        name = unescape(escaped)
        if name is None or name_problem(name) is not None:
            raise AuthenticationFailed("an invalid user name")
        self.user = name
        if authzid and unescape(authzid) != name:
            raise AuthenticationFailed("it requests to act as another user")
        if not _NONCE.fullmatch(nonce):
            raise AuthenticationFailed("a nonce with unprintable characters")
        self._header = text[: -len(bare)]
        is_token = "tokenauth=true" in extensions.split(",")
        self._credential = self._find(name, is_token=is_token)
        self._nonce = nonce + self._own_nonce
        salt = base64.b64encode(self._credential.salt).decode()
        reply = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        self._signed = f"{bare},{reply}"
        return Challenge(data=reply.encode())

    def _find(self, name: str, *, is_token: bool) -> ScramCredential:
        credential: ScramCredential | None = None
        if is_token:
            self._token = self._find_token(name)
            credential = None if self._token is None else self._token.credential
        elif (user := self._users.get(name)) is not None:
            credential = user.credentials.get(self._mechanism)
        self._exists = credential is not None
        return credential or stand_in(self._secret, self._mechanism, name)

    def _verify(self, text: str, credential: ScramCredential, now_ms: int) -> Accepted:
        found = _FINAL.fullmatch(text)
        if found is None:
            raise AuthenticationFailed("not the final message of SCRAM")
        without_proof, binding, nonce, proof = found.groups()
        if _unbase64(binding) != self._header.encode():
            raise AuthenticationFailed("its channel binding differs from that of its first message")
        # The whole nonce: CVE-2024-56128.
        if not hmac.compare_digest(nonce.encode(), self._nonce.encode()):
            raise AuthenticationFailed("its nonce is not the one it was sent")
        signed = f"{self._signed},{without_proof}".encode()
        signature = hmac.digest(credential.stored_key, signed, self._hash)
        shown = _unbase64(proof)
        if len(shown) != len(signature):
            raise AuthenticationFailed("a proof of another size")
        client_key = bytes(a ^ b for a, b in zip(shown, signature, strict=True))
        is_proved = hmac.compare_digest(
            hashlib.new(self._hash, client_key).digest(), credential.stored_key
        )
        if not is_proved or not self._exists:
            raise AuthenticationFailed(
                "the password is wrong" if self._exists else "there is no such user"
            )
        verifier = hmac.digest(credential.server_key, signed, self._hash)
        data = b"v=" + base64.b64encode(verifier)
        if self._token is None:
            return Accepted(name=self.user, data=data)
        if self._token.expires_ms <= now_ms:
            raise AuthenticationFailed("the delegation token has expired")
        return Accepted(
            name=self._token.owner,
            data=data,
            token_id=self.user,
            expires_ms=self._token.expires_ms,
        )


def unescape(name: str) -> str | None:
    """Undo `=2C` and `=3D`, the only escapes; None if there is another one."""
    if re.search(r"=(?!2C|3D)", name):
        return None
    # In this order: "=3D2C" is the text "=2C", not a comma.
    return name.replace("=2C", ",").replace("=3D", "=")


def _unbase64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        return b""
