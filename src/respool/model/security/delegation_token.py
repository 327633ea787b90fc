"""Delegation tokens (KIP-48): a login that its owner can hand to others, with an expiry time.

The token's password is an HMAC of its id, with a key that brokers read from a file. The metadata store has neither, so
a copy of the store is useless for logins.
"""

import base64
import hashlib
import hmac
from dataclasses import dataclass

from respool.model.security.principal import Principal
from respool.model.security.scram_credential import SCRAM_HASHES, ScramCredential

# The password is random already: more iterations would protect nothing.
ITERATIONS = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationToken:
    """Times are in milliseconds since the epoch."""

    id: str
    owner: Principal
    # The principal that created it: the owner, or one that may create tokens for the owner.
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_ms: int
    expires_ms: int
    # The latest time it can be renewed to.
    max_ms: int
    # The revision of its key in the metadata store.
    revision: int = 0

    def may_renew(self, principal: Principal) -> bool:
        """True if the principal may renew and expire it, and see it."""
        return principal in (self.owner, self.requester, *self.renewers)

    def is_expired(self, now_ms: int) -> bool:
        return now_ms >= self.expires_ms


def token_hmac(secret: bytes, token_id: str) -> bytes:
    return hmac.digest(secret, token_id.encode(), "sha512")


def token_credential(secret: bytes, token_id: str, mechanism: str) -> ScramCredential:
    """The credential that logins with the token are checked against: the password is the HMAC in base64."""
    password = base64.b64encode(token_hmac(secret, token_id)).decode()
    salt = hashlib.new(SCRAM_HASHES[mechanism], b"salt" + token_id.encode()).digest()[:24]
    return ScramCredential.from_password(mechanism, password, salt=salt, iterations=ITERATIONS)
