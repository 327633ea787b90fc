"""The client side of SASL: PLAIN (RFC 4616) and SCRAM (RFC 5802, 7677), as Kafka's brokers implement them.

A conversation takes the broker's message and returns the client's next one; None when the exchange is complete and the
broker is authenticated.

    client   n,,n=user,r=NONCE[,tokenauth=true]
    broker   r=NONCE+theirs,s=SALT,i=ITERATIONS
    client   c=biws,r=NONCE+theirs,p=PROOF          proves that it knows the password
    broker   v=SIGNATURE                            proves that it knows it, too
"""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Protocol

from respool.client.kafka.codes import Code, code_name
from respool.client.kafka.errors import LoginRefused
from respool.wire.api_table import Api

# Mechanism -> its hash function.
HASHES = MappingProxyType({"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"})

# Kafka's minimum. Fewer iterations would help an eavesdropper to guess passwords; a broker that asks for fewer is
# not trusted.
ITERATIONS_MIN = 4_096
# A broker that asks for more could exhaust the client's CPU.
ITERATIONS_MAX = 1_000_000

_NONCE_BYTES = 24
# The GS2 header for no channel binding; the final message repeats it.
_HEADER = "n,,"


# SCRAM takes two rounds; the limit stops a broker that never finishes.
_ROUNDS_MAX = 8

_NO_LOGINS = (
    "a login is given, and the broker has none on this port: was another port meant, or "
    "security.protocol without SASL?"
)


class Requests(Protocol):
    """A newly opened connection."""

    def speaks(self, api: Api) -> bool: ...

    def version(self, api: Api) -> int: ...

    def request(self, api: Api, version: int, fields: Mapping[str, Any]) -> Any: ...


class SaslLogin(Protocol):
    @property
    def mechanism(self) -> str: ...

    @property
    def username(self) -> str: ...

    def begin(self) -> "PlainLogin | ScramLogin": ...


def authenticate(connection: Requests, login: SaslLogin) -> None:
    """Send SaslHandshake, then SaslAuthenticate until the mechanism is complete.

    Raises:
        LoginRefused: by the broker or by this client. No password is sent to a broker without SASL.
        ConnectionLost
    """
    if not connection.speaks(Api.SASL_HANDSHAKE):
        raise LoginRefused(_NO_LOGINS)
    reply = connection.request(
        Api.SASL_HANDSHAKE,
        connection.version(Api.SASL_HANDSHAKE),
        {"mechanism": login.mechanism},
    )
    if reply.error_code == Code.illegal_sasl_state:
        raise LoginRefused(_NO_LOGINS)
    if reply.error_code == Code.unsupported_sasl_mechanism:
        known = ", ".join(sorted(map(str, reply.mechanisms))) or "none"
        raise LoginRefused(f"the broker does not know {login.mechanism}; it knows {known}")
    if reply.error_code:
        raise LoginRefused(
            f"the broker refuses SaslHandshake: {code_name(reply.error_code)} ({int(reply.error_code)})"
        )
    conversation = login.begin()
    version = connection.version(Api.SASL_AUTHENTICATE)
    message: bytes | None = conversation.begin()
    for _ in range(_ROUNDS_MAX):
        if message is None:
            return
        reply = connection.request(Api.SASL_AUTHENTICATE, version, {"auth_bytes": message})
        if reply.error_code:
            raise LoginRefused(
                f"the broker refuses {login.username!r} by {login.mechanism}: "
                f"{(reply.error_message or code_name(reply.error_code))[:500]}"
            )
        message = conversation.answer(bytes(reply.auth_bytes))
    raise LoginRefused("the broker does not end the login")


class PlainLogin:
    """Sends the password itself, so it is confidential only over TLS."""

    def __init__(self, username: str, password: str) -> None:
        self._message = f"\0{username}\0{password}".encode()

    def begin(self) -> bytes:
        return self._message

    def answer(self, said: bytes) -> bytes | None:
        # The content of the broker's reply means nothing: the absence of an error is the success.
        del said
        return None


class ScramLogin:
    def __init__(
        self,
        mechanism: str,
        username: str,
        password: str,
        *,
        nonce: str | None = None,
        is_token: bool = False,
    ) -> None:
        self._hash = HASHES[mechanism]
        self._password = password.encode()
        self._nonce = nonce or secrets.token_urlsafe(_NONCE_BYTES)
        name = username.replace("=", "=3D").replace(",", "=2C")
        extension = ",tokenauth=true" if is_token else ""
        self._first = f"n={name},r={self._nonce}{extension}"
        # The signature expected in the broker's last message; computed after its first.
        self._signature: bytes | None = None

    def begin(self) -> bytes:
        return (_HEADER + self._first).encode()

    def answer(self, said: bytes) -> bytes | None:
        """
        Raises:
            LoginRefused: the broker rejects the client, or fails to authenticate itself.
        """
        if self._signature is None:
            return self._prove(said)
        fields = _fields(said)
        if not hmac.compare_digest(_unbase64(fields.get("v", "")), self._signature):
            raise LoginRefused("the broker could not prove that it knows the password, too")
        return None

    def _prove(self, said: bytes) -> bytes:
        fields = _fields(said)
        nonce, salt = fields.get("r", ""), _unbase64(fields.get("s", ""))
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise LoginRefused("the broker did not take up the number we sent it")
        if not salt:
            raise LoginRefused("the broker sent no salt")
        count = _count(fields.get("i", ""))
        if not ITERATIONS_MIN <= count <= ITERATIONS_MAX:
            asked = fields.get("i", "")[:20] or "no"
            raise LoginRefused(
                f"the broker asks for {asked} iterations; from {ITERATIONS_MIN} to {ITERATIONS_MAX} are taken"
            )
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, count)
        bare = f"c={base64.b64encode(_HEADER.encode()).decode()},r={nonce}"
        signed = f"{self._first},{said.decode()},{bare}".encode()
        client_key = self._hmac(salted, b"Client Key")
        signature = self._hmac(hashlib.new(self._hash, client_key).digest(), signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        return f"{bare},p={base64.b64encode(proof).decode()}".encode()

    def _hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self._hash)


def _fields(said: bytes) -> dict[str, str]:
    """Parse `a=1,b=2` into a dict.

    Raises:
        LoginRefused: the broker reports an error, or the message is not SCRAM.
    """
    try:
        fields = dict([one.split("=", 1) for one in said.decode().split(",")])
    except (UnicodeDecodeError, ValueError):
        raise LoginRefused("what the broker says is no SCRAM") from None
    if "e" in fields:
        raise LoginRefused(f"the broker says: {fields['e'][:200]}")
    if "m" in fields:
        # RFC 5802: a mandatory extension; this client supports none.
        raise LoginRefused("the broker wants an extension of SCRAM that is not known here")
    return fields


def _count(text: str) -> int:
    """Parse digits; 0 if invalid. `int` alone accepts signs, blanks, non-ASCII digits, and any length."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _unbase64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return b""
