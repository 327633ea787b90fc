"""Delegation tokens of this cluster (KIP-48): who may create, see, renew and expire them, and how they are stored.

A token is a login as its owner, so the right to act for somebody else must be given explicitly: without ACLs, clients
create and see their own tokens only. Expired tokens are deleted when the next one is created.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from respool.broker.logins.login_changes import LoginChanges
from respool.broker.metadata.catalog import Catalog
from respool.broker.world import World
from respool.cluster.guarded_write import GuardedWrite
from respool.cluster.login_store import encode_token, token_key, user_key
from respool.cluster.view import ClusterView
from respool.model.errors import InvalidRequest, PolicyViolation
from respool.model.security.delegation_token import DelegationToken, token_hmac
from respool.model.security.principal import USER, ClientSession, Principal
from respool.model.security.security_errors import (
    DelegationTokensDisabled,
    InvalidPrincipalType,
    TokenExpired,
    TokenNotFound,
    TokenOwnerMismatch,
    TokenRequestNotAllowed,
)
from respool.model.security.security_settings import SecuritySettings
from respool.ports.metadata_store import Guard

TOKENS_MAX = 10_000
TOKENS_PER_OWNER_MAX = 1_000
RENEWERS_MAX = 100
NAME_LENGTH_MAX = 1_024
# Maximum number of expired tokens deleted with one write.
SWEPT_MAX = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRequest:
    """A token that a client asks for."""

    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...] = ()
    # 0 or less: as long as the settings allow.
    lifetime_ms: int = -1

    def check(self) -> None:
        """
        Raises:
            RequestError: such a token cannot exist.
        """
        named = (self.owner, *self.renewers)
        if any(one.type != USER for one in named):
            raise InvalidPrincipalType("owners and renewers of delegation tokens are of type User")
        if any(not 0 < len(one.name) <= NAME_LENGTH_MAX for one in named):
            raise InvalidRequest(
                f"names of owners and renewers have from 1 to {NAME_LENGTH_MAX} characters"
            )
        if len(self.renewers) > RENEWERS_MAX:
            raise PolicyViolation(f"a delegation token has at most {RENEWERS_MAX} renewers")


class DelegationTokens:
    def __init__(
        self, settings: SecuritySettings, *, catalog: Catalog, world: World, changes: LoginChanges
    ) -> None:
        self._settings = settings
        self._catalog = catalog
        self._clock = world.clock
        self._rng = world.rng
        self._secret = world.token_secret
        self._changes = changes
        # The ids of the tokens in `_known`, by HMAC.
        self._ids: dict[bytes, str] = {}
        self._known: Mapping[str, DelegationToken] = {}

    def check_session(self, session: ClientSession) -> None:
        """
        Raises:
            RequestError: this client cannot do anything with tokens.
        """
        if not self._secret:
            raise DelegationTokensDisabled(
                "there are no delegation tokens: delegation_token_secret_key_file is not set"
            )
        if not session.is_authenticated or session.token_id is not None:
            raise TokenRequestNotAllowed(
                "delegation tokens are for clients that log in by themselves, and not with a token"
            )

    async def create(self, asked: TokenRequest) -> DelegationToken:
        """
        Raises:
            RequestError
        """
        asked.check()
        now_ms = self._clock.now_ms()
        lifetime_ms = self._settings.delegation_token_max_lifetime_ms
        if asked.lifetime_ms > 0:
            lifetime_ms = min(lifetime_ms, asked.lifetime_ms)
        max_ms = now_ms + lifetime_ms
        token = DelegationToken(
            id=self._rng.uuid().hex,
            owner=asked.owner,
            requester=asked.requester,
            renewers=asked.renewers,
            issued_ms=now_ms,
            expires_ms=min(max_ms, now_ms + self._settings.delegation_token_expiry_time_ms),
            max_ms=max_ms,
        )
        await self._changes.write(lambda view: store_token(view, token, now_ms=now_ms))
        return token

    async def renew(self, session: ClientSession, hmac: bytes, *, period_ms: int) -> int:
        """Return the new expiry time of the token; a period of 0 or less stands for the setting.

        Raises:
            RequestError
        """
        if period_ms <= 0:
            period_ms = self._settings.delegation_token_expiry_time_ms
        period_ms = min(period_ms, self._settings.delegation_token_expiry_time_ms)
        return await self._set_expiry(session, hmac, period_ms)

    async def expire(self, session: ClientSession, hmac: bytes, *, period_ms: int) -> int:
        """Return when the token expires; with a negative period it is deleted, and its connections end.

        Raises:
            RequestError
        """
        if period_ms >= 0:
            return await self._set_expiry(session, hmac, period_ms)
        token_id, now_ms = self._id_of(hmac), self._clock.now_ms()

        def decide(view: ClusterView) -> list[GuardedWrite]:
            token = _find(view, token_id, session.principal, now_ms=now_ms)
            return [_write(view, token, None)]

        await self._changes.write(decide)
        return now_ms

    async def _set_expiry(self, session: ClientSession, hmac: bytes, period_ms: int) -> int:
        token_id, now_ms = self._id_of(hmac), self._clock.now_ms()
        expires_ms = 0

        def decide(view: ClusterView) -> list[GuardedWrite]:
            nonlocal expires_ms
            token = _find(view, token_id, session.principal, now_ms=now_ms)
            expires_ms = min(token.max_ms, now_ms + period_ms)
            return [_write(view, token, replace(token, expires_ms=expires_ms))]

        await self._changes.write(decide)
        return expires_ms

    def valid(self) -> Iterator[DelegationToken]:
        """The tokens that have not expired, oldest first."""
        now_ms = self._clock.now_ms()
        tokens = self._catalog.image.tokens.values()
        return iter(
            sorted(
                (one for one in tokens if not one.is_expired(now_ms)),
                key=lambda one: (one.issued_ms, one.id),
            )
        )

    def hmac_of(self, token: DelegationToken) -> bytes:
        """The token's password, for its owner and renewers."""
        return token_hmac(self._secret, token.id)

    def _id_of(self, hmac: bytes) -> str:
        tokens = self._catalog.image.tokens
        if tokens is not self._known:
            kept = {mac: one for mac, one in self._ids.items() if one in tokens}
            new = tokens.keys() - set(kept.values())
            self._ids = kept | {token_hmac(self._secret, one): one for one in new}
            self._known = tokens
        found = self._ids.get(hmac)
        if found is None:
            raise TokenNotFound("there is no such delegation token")
        return found


def store_token(view: ClusterView, token: DelegationToken, *, now_ms: int) -> list[GuardedWrite]:
    """Store a new token and delete some that have expired.

    Raises:
        PolicyViolation: there are too many.
    """
    tokens = view.image.tokens.values()
    expired = [one for one in tokens if one.is_expired(now_ms)]
    if len(tokens) - len(expired) >= TOKENS_MAX:
        raise PolicyViolation(f"there are {TOKENS_MAX} delegation tokens, which is the limit")
    of_owner = [one for one in tokens if one.owner == token.owner and not one.is_expired(now_ms)]
    if len(of_owner) >= TOKENS_PER_OWNER_MAX:
        raise PolicyViolation(
            f"{token.owner} has {TOKENS_PER_OWNER_MAX} delegation tokens, which is the limit: expire some"
        )
    guards = [view.guard, Guard(key=token_key(token.id), revision=0)]
    user = view.image.users.get(token.owner.name)
    if user is not None:
        # If the user is removed in the meantime, no token is left.
        guards.append(Guard(key=user_key(user.name), revision=user.revision))
    swept = expired[:SWEPT_MAX]
    return [
        GuardedWrite(
            guards=tuple(guards),
            puts={token_key(token.id): encode_token(token)},
            deletes=tuple(token_key(one.id) for one in swept),
            why=f"a delegation token of {str(token.owner)!r} is made",
        )
    ]


def _find(
    view: ClusterView, token_id: str, principal: Principal, *, now_ms: int
) -> DelegationToken:
    token = view.image.tokens.get(token_id)
    if token is None:
        raise TokenNotFound("there is no such delegation token")
    if token.is_expired(now_ms):
        raise TokenExpired("the delegation token has expired")
    if not token.may_renew(principal):
        raise TokenOwnerMismatch("only its owner, its requester and its renewers may do this")
    return token


def _write(
    view: ClusterView, token: DelegationToken, after: DelegationToken | None
) -> GuardedWrite:
    key = token_key(token.id)
    puts: dict[str, bytes] = {} if after is None else {key: encode_token(after)}
    deletes: Sequence[str] = (key,) if after is None else ()
    return GuardedWrite(
        guards=(view.guard, Guard(key=key, revision=token.revision)),
        puts=puts,
        deletes=tuple(deletes),
        why=f"the expiry of a delegation token of {str(token.owner)!r} is changed",
    )
