"""Delegation tokens (KIP-48): a login that its owner hands to others, with an end.

The token's HMAC, which is its password, is made of its id with a key that brokers read from a file. The metadata store
has neither, so a copy of the store lets nobody in.
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
    # Who asked for it: the owner, or a principal that may make tokens for the owner.
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_ms: int
    expires_ms: int
    # It cannot be renewed beyond that.
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
    """What a login with the token is compared with: its HMAC in base64 is the password."""
    password = base64.b64encode(token_hmac(secret, token_id)).decode()
    salt = hashlib.new(SCRAM_HASHES[mechanism], b"salt" + token_id.encode()).digest()[:24]
    return ScramCredential.from_password(mechanism, password, salt=salt, iterations=ITERATIONS)
