"""Logins of clients: begins them, checks passwords in threads, and ends sessions whose user or token is gone."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from respool.broker.logins.delegation_tokens import DelegationTokens
from respool.broker.logins.login_changes import LoginChanges
from respool.broker.metadata.catalog import Catalog
from respool.broker.world import World
from respool.cluster.login_store import LOGIN_SECRET, encode_login_secret
from respool.model.security.delegation_token import DelegationToken, token_credential
from respool.model.security.listener_settings import ListenerSettings
from respool.model.security.principal import USER, AuthenticationMethod, ClientSession, Principal
from respool.model.security.scram_credential import SCRAM_HASHES, ScramCredential
from respool.model.settings import Settings
from respool.pacing.failure_delays import FailureDelays
from respool.ports.clock import Clock
from respool.ports.metadata_store import GuardFailed
from respool.wire.login.json_web_keys import NO_KEYS, KeySet, KeysUnusable, parse_keys
from respool.wire.login.json_web_token import TokenRules, TokenVerifier
from respool.wire.login.mechanism import Accepted, AuthenticationFailed, CheckPassword, Mechanism
from respool.wire.login.oauthbearer import OAuthBearerMechanism
from respool.wire.login.plain import PlainMechanism
from respool.wire.login.scram import ScramMechanism, ScramToken
from respool.wire.login.stage import lifetime_ms

logger = logging.getLogger(__name__)

SECRET_BYTES = 32
# PBKDF2 takes milliseconds of a core each.
PASSWORD_CHECKS_AT_ONCE = 2
TOKEN_CREDENTIALS_MAX = 4_096
_BY_PASSWORD = frozenset(
    {
        AuthenticationMethod.PLAIN,
        AuthenticationMethod.SCRAM_SHA_256,
        AuthenticationMethod.SCRAM_SHA_512,
    }
)


class Logins:
    def __init__(
        self,
        *,
        settings: Settings,
        catalog: Catalog,
        world: World,
    ) -> None:
        self._settings = settings
        self._catalog = catalog
        self._clock = world.clock
        self._rng = world.rng
        self._offload = world.offload
        # The key of delegation tokens; empty: there are none.
        self.token_secret = world.token_secret
        self.delegation_tokens = DelegationTokens(
            settings.security,
            catalog=catalog,
            world=world,
            changes=LoginChanges(catalog, world.offload),
        )
        self._token_credentials: dict[tuple[str, str], ScramCredential] = {}
        self.delays = FailureDelays(
            first_ms=settings.security.connection_failed_authentication_delay_ms
        )
        self._password_checks = asyncio.Semaphore(PASSWORD_CHECKS_AT_ONCE)
        self._identity_keys = world.identity_keys
        self._parsed: tuple[bytes | None, KeySet] = (None, NO_KEYS)
        self._verifier = self._new_verifier()

    @property
    def is_needed(self) -> bool:
        return any(one.protocol.has_login for one in self._settings.listeners)

    @property
    def clock(self) -> Clock:
        return self._clock

    async def prepare(self) -> None:
        """Create the secret of the logins, unless another broker or an earlier run has created it.

        Raises:
            StoreUnavailable: try again.
        """
        if not self.is_needed or self._catalog.image.login_secret:
            return
        with suppress(GuardFailed):
            await self._catalog.put(
                LOGIN_SECRET, encode_login_secret(self.random_bytes(SECRET_BYTES)), revision=0
            )

    def random_bytes(self, count: int) -> bytes:
        """At least 7 of every 8 bits are random."""
        data = b"".join(self._rng.uuid().bytes for _ in range(-(-count // 16)))
        return data[:count]

    # -- one login ---------------------------------------------------------------------------------------------------

    def begin(self, mechanism: str) -> Mechanism:
        """A login attempt by a mechanism that the listener offers."""
        image = self._catalog.image
        if mechanism == AuthenticationMethod.PLAIN:
            return PlainMechanism(image.users, secret=image.login_secret)
        if mechanism == AuthenticationMethod.OAUTHBEARER:
            assert self._verifier is not None
            return OAuthBearerMechanism(self._verifier.verify)
        return ScramMechanism(
            mechanism,
            image.users,
            secret=image.login_secret,
            nonce=self.random_bytes(24).hex(),
            find_token=lambda token_id: self._token(token_id, mechanism),
        )

    async def check(self, step: CheckPassword) -> Accepted:
        """
        Raises:
            AuthenticationFailed
        """
        async with self._password_checks:
            is_right = await self._offload.run(step.is_right)
        if not is_right:
            raise AuthenticationFailed(
                "the password is wrong" if step.exists else "there is no such user"
            )
        return Accepted(name=step.name)

    def session(
        self, accepted: Accepted, mechanism: str, *, before: ClientSession
    ) -> ClientSession:
        """The session after a login; it keeps the decisions and buckets of the one before only if that is the same.

        Raises:
            AuthenticationFailed: the user or the token was removed in the meantime.
        """
        now_ms = self._clock.now_ms()
        expires_ms = accepted.expires_ms
        if expires_ms is not None and expires_ms <= now_ms:
            raise AuthenticationFailed("its credential has expired")
        left_ms = lifetime_ms(
            now_ms=now_ms,
            credential_expires_ms=expires_ms,
            session_max_ms=self._settings.security.connections_max_reauth_ms,
        )
        session = replace(
            before,
            principal=Principal(accepted.name, USER),
            method=AuthenticationMethod(mechanism),
            token_id=accepted.token_id,
            expires_ms=None if left_ms is None else self._clock.monotonic_ms() + left_ms,
            decisions=None,
            buckets=None,
        )
        session.is_broker = self.is_broker(session)
        if self.is_revoked(session):
            raise AuthenticationFailed("the user was removed during the login")
        return session

    # -- sessions ----------------------------------------------------------------------------------------------------

    def first_session(self, listener: ListenerSettings, host: str) -> ClientSession:
        """The session of a connection that has not authenticated yet."""
        session = ClientSession(
            host=host, listener=listener.name, is_encrypted=listener.protocol.has_tls
        )
        session.is_broker = not listener.is_authenticated and self.is_broker(session)
        return session

    def is_broker(self, session: ClientSession) -> bool:
        """True if this session may send requests that only brokers send.

        If the brokers' listener authenticates, only principals of brokers may; a delegation token never may.
        """
        if session.listener != self._settings.inter_broker_listener or session.token_id:
            return False
        if not self._settings.metadata_store.addresses:
            return True
        between = next(one for one in self._settings.listeners if one.name == session.listener)
        return not between.is_authenticated or session.principal in self._settings.security.brokers

    def is_revoked(self, session: ClientSession) -> bool:
        """True if the user that logged in was removed since, or the token is gone or has expired."""
        image = self._catalog.image
        if session.token_id is not None:
            token = image.tokens.get(session.token_id)
            return token is None or token.is_expired(self._clock.now_ms())
        return session.method in _BY_PASSWORD and session.principal.name not in image.users

    @property
    def tokens(self) -> Mapping[str, DelegationToken]:
        return self._catalog.image.tokens

    def _token(self, token_id: str, mechanism: str) -> ScramToken | None:
        token = self.tokens.get(token_id)
        if token is None or not self.token_secret or mechanism not in SCRAM_HASHES:
            return None
        # Computed once: it takes thousands of hashes, and this runs in the event loop.
        credential = self._token_credentials.get((token_id, mechanism))
        if credential is None:
            if len(self._token_credentials) >= TOKEN_CREDENTIALS_MAX:
                self._token_credentials.clear()
            credential = token_credential(self.token_secret, token_id, mechanism)
            self._token_credentials[token_id, mechanism] = credential
        return ScramToken(
            credential=credential,
            owner=token.owner.name,
            expires_ms=token.expires_ms,
        )

    # -- tokens of an identity provider ------------------------------------------------------------------------------

    def _new_verifier(self) -> TokenVerifier | None:
        security = self._settings.security
        if self._identity_keys is None or not security.audiences:
            return None
        return TokenVerifier(
            TokenRules(
                issuer=security.sasl_oauthbearer_expected_issuer,
                audience=security.audiences,
                name_claim=security.sasl_oauthbearer_sub_claim_name,
                skew_ms=security.sasl_oauthbearer_clock_skew_seconds * 1000,
            ),
            keys=self._keys,
            on_unknown_key=self._identity_keys.refresh_soon,
        )

    def _keys(self) -> KeySet:
        assert self._identity_keys is not None
        document = self._identity_keys.document
        if document is not self._parsed[0]:
            try:
                self._parsed = document, parse_keys(document) if document else NO_KEYS
            except KeysUnusable as error:
                # The old keys stay valid: an invalid answer of the provider must not lock everybody out.
                logger.warning("the identity provider's keys cannot be used: %s", error)
                self._parsed = document, self._parsed[1]
        return self._parsed[1]
