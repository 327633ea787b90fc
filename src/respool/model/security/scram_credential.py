"""The stored form of a password (RFC 5802): enough to check a login, not enough to log in.

SaltedPassword = PBKDF2(password, salt, iterations)
StoredKey      = H(HMAC(SaltedPassword, "Client Key"))
ServerKey      = HMAC(SaltedPassword, "Server Key")
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Self

from respool.model.security.principal import AuthenticationMethod

# Kafka's limits.
ITERATIONS_MIN = 4_096
ITERATIONS_MAX = 16_384
SALT_BYTES = 24
USER_NAME_LENGTH_MAX = 255

# Mechanism -> its hash function.
SCRAM_HASHES: Mapping[str, str] = MappingProxyType(
    {
        AuthenticationMethod.SCRAM_SHA_256.value: "sha256",
        AuthenticationMethod.SCRAM_SHA_512.value: "sha512",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredential:
    mechanism: str
    iterations: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    @classmethod
    def from_password(
        cls, mechanism: str, password: str, *, salt: bytes, iterations: int = ITERATIONS_MAX
    ) -> Self:
        """Takes milliseconds: call it off the event loop."""
        salted = salted_password(mechanism, password, salt=salt, iterations=iterations)
        return cls.from_salted(mechanism, salted, salt=salt, iterations=iterations)

    @classmethod
    def from_salted(cls, mechanism: str, salted: bytes, *, salt: bytes, iterations: int) -> Self:
        hash_name = SCRAM_HASHES[mechanism]
        client_key = hmac.digest(salted, b"Client Key", hash_name)
        return cls(
            mechanism=mechanism,
            iterations=iterations,
            salt=salt,
            stored_key=hashlib.new(hash_name, client_key).digest(),
            server_key=hmac.digest(salted, b"Server Key", hash_name),
        )

    def has_password(self, password: str) -> bool:
        """True if this is the credential's password. Takes milliseconds: call it off the event loop."""
        salted = salted_password(
            self.mechanism, password, salt=self.salt, iterations=self.iterations
        )
        server_key = hmac.digest(salted, b"Server Key", SCRAM_HASHES[self.mechanism])
        return hmac.compare_digest(server_key, self.server_key)


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user that may log in by PLAIN or SCRAM, with one credential for each of its mechanisms."""

    name: str
    credentials: Mapping[str, ScramCredential]
    # The revision of its key in the metadata store.
    revision: int = 0

    def any_credential(self) -> ScramCredential:
        """The credential that PLAIN logins are checked against: the one with the stronger hash."""
        return self.credentials[max(self.credentials)]


def salted_password(mechanism: str, password: str, *, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(SCRAM_HASHES[mechanism], password.encode(), salt, iterations)


def stand_in(secret: bytes, mechanism: str, name: str) -> ScramCredential:
    """The credential of a user that does not exist: no password matches it.

    It is the same on every broker and after a restart, so nobody can distinguish it from a real one.
    """
    seed = hmac.digest(secret, f"{mechanism}\0{name}".encode(), "sha512")
    size = hashlib.new(SCRAM_HASHES[mechanism]).digest_size
    return ScramCredential(
        mechanism=mechanism,
        iterations=ITERATIONS_MAX,
        salt=seed[:SALT_BYTES],
        stored_key=hmac.digest(secret, b"stored" + seed, "sha512")[:size],
        server_key=hmac.digest(secret, b"server" + seed, "sha512")[:size],
    )


def name_problem(name: str) -> str | None:
    """The reason why a user cannot have this name; None: the name is valid."""
    if not name:
        return "the user's name is empty"
    if len(name) > USER_NAME_LENGTH_MAX:
        return f"a user's name has at most {USER_NAME_LENGTH_MAX} characters"
    if not name.isascii() or not name.isprintable():
        return "a user's name has printable ASCII characters only"
    return None
