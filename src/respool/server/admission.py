"""Admission of one connection, on a listener with TLS or logins: until it is admitted, it may send hardly any request.

The connection asks before it parses a request. A plaintext listener without logins has no admission, and no such
cost.
"""

import asyncio
import logging
from dataclasses import replace
from struct import Struct

from respool.broker.handlers.support.replies import error_fields
from respool.broker.outcome import Outcome, Reply
from respool.model.errors import RequestError, UnsupportedVersion
from respool.model.security.distinguished_name import NotACertificate, subject_of
from respool.model.security.principal import (
    CLIENT_LISTENER,
    AuthenticationMethod,
    ClientSession,
    Principal,
)
from respool.model.security.security_errors import (
    IllegalSaslState,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
)
from respool.server.listener_endpoint import ListenerEndpoint
from respool.wire.codec import Request, encode_reply
from respool.wire.login.mechanism import (
    Accepted,
    AuthenticationFailed,
    Challenge,
    CheckPassword,
    Mechanism,
)
from respool.wire.login.stage import SASL_AUTHENTICATE, SASL_HANDSHAKE, IllegalStep, LoginStage
from respool.wire.protocol_errors import ProtocolViolation

logger = logging.getLogger(__name__)

# Requests before a mechanism is chosen are small.
FIRST_FRAME_BYTES_MAX = 64 * 1024
REFUSED_TEXT = "Authentication failed: invalid credentials"
_KEY = Struct(">h")


class LoginRequired(ProtocolViolation):
    """The client sent a request before its login, or after its session expired."""


class Admission:
    def __init__(self, endpoint: ListenerEndpoint, session: ClientSession) -> None:
        self._endpoint = endpoint
        self._logins = endpoint.logins
        self._has_login = endpoint.settings.protocol.has_login
        self._stage = LoginStage()
        self.session = session
        # After the reply that is being sent, the connection is closed.
        self.closes = False
        self.is_admitted = False
        # The largest frame that the client may send now; None: the broker's limit.
        self.frame_bytes_max: int | None = FIRST_FRAME_BYTES_MAX

    # -- TLS ---------------------------------------------------------------------------------------------------------

    def on_secured(self, certificate: bytes | None) -> str | None:
        """The handshake is done. Return why the client is refused, or None.

        On a listener with logins, the certificate only admits; the login determines the principal.
        """
        why = None if self._has_login else self._map_certificate(certificate)
        self._endpoint.on_handshake(is_done=why is None)
        return why

    def on_handshake_failed(self) -> None:
        self._endpoint.on_handshake(is_done=False)

    def _map_certificate(self, certificate: bytes | None) -> str | None:
        session = self.session
        if certificate is not None:
            try:
                subject = subject_of(certificate)
            except NotACertificate as error:
                return str(error)
            name = self._endpoint.settings.principal_mapping.name_of(subject)
            if name is None:
                return f"no rule of ssl_principal_mapping_rules matches its certificate, {subject[:256]!r}"
            session = replace(session, principal=Principal(name), method=AuthenticationMethod.TLS)
        session.is_broker = self._logins.is_broker(session)
        self._admit(session)
        return None

    # -- requests ----------------------------------------------------------------------------------------------------

    def check_frame(self, frame: memoryview) -> None:
        """
        Raises:
            LoginRequired: the request must not even be parsed.
        """
        if not self._has_login:
            return
        (key,) = _KEY.unpack_from(frame)
        why = self._stage.why_not(key, now_ms=self._logins.clock.monotonic_ms())
        if why is not None:
            raise LoginRequired(why)

    def serves(self, request: Request) -> bool:
        """True if the request is part of a login, and `serve` answers it."""
        return self._has_login and request.api.key in (SASL_HANDSHAKE, SASL_AUTHENTICATE)

    def serve(self, request: Request) -> Outcome:
        if request.api.key == SASL_HANDSHAKE:
            return self._on_handshake(request)
        try:
            attempt = self._stage.on_authenticate()
        except IllegalStep as error:
            self.closes |= error.closes
            return self._refusal(request, IllegalSaslState(str(error)))
        return self._authenticate(request, attempt)

    def _on_handshake(self, request: Request) -> Reply:
        offered = self._endpoint.settings.sasl_enabled_mechanisms
        mechanism = str(request.body.mechanism)
        error: RequestError | None = None
        if request.version == 0:
            # Its tokens would follow without request frames.
            error, self.closes = UnsupportedVersion(), True
        elif mechanism not in offered:
            self._note_failure("", f"its mechanism {mechanism[:32]!r} is not offered")
            error, self.closes = UnsupportedSaslMechanism(), True
        else:
            try:
                self._stage.on_handshake(
                    mechanism,
                    self._logins.begin(mechanism),
                    now_ms=self._logins.clock.monotonic_ms(),
                )
                if not self.is_admitted:
                    self.frame_bytes_max = self._endpoint.login_frame_bytes_max
                self._mechanism = mechanism
            except IllegalStep as step:
                error, self.closes = IllegalSaslState(), step.closes
        code = 0 if error is None else error.code
        return [encode_reply(request, {"error_code": code, "mechanisms": offered})]

    async def _authenticate(self, request: Request, attempt: Mechanism) -> Reply:
        try:
            step = attempt.step(bytes(request.body.auth_bytes), now_ms=self._logins.clock.now_ms())
            if isinstance(step, Challenge):
                return self._reply(request, step.data, 0)
            if isinstance(step, CheckPassword):
                step = await self._logins.check(step)
            return self._accept(request, step)
        except AuthenticationFailed as failure:
            return await self._fail(request, attempt.user, failure)

    def _accept(self, request: Request, accepted: Accepted) -> Reply:
        now_ms = self._logins.clock.monotonic_ms()
        session = self._logins.session(accepted, self._mechanism, before=self.session)
        try:
            self._stage.on_accepted(
                str(session.principal), expires_ms=session.expires_ms, now_ms=now_ms
            )
        except IllegalStep as error:
            raise AuthenticationFailed(str(error)) from None
        self._admit(session)
        self._endpoint.on_login(self._mechanism, is_accepted=True)
        left_ms = 0 if session.expires_ms is None else max(1, session.expires_ms - now_ms)
        return self._reply(request, accepted.data, left_ms)

    async def _fail(self, request: Request, user: str, failure: AuthenticationFailed) -> Reply:
        self._stage.fail()
        self.closes = True
        self._endpoint.on_login(self._mechanism, is_accepted=False)
        self._note_failure(user, str(failure))
        delay_ms = self._logins.delays.on_failure(
            self.session.host, now_ms=self._logins.clock.monotonic_ms()
        )
        await asyncio.sleep(delay_ms / 1000)
        return self._refusal(request, SaslAuthenticationFailed(REFUSED_TEXT))

    def _admit(self, session: ClientSession) -> None:
        self.session, self.is_admitted, self.frame_bytes_max = session, True, None

    def _refusal(self, request: Request, error: RequestError) -> Reply:
        fields = {**error_fields(error), "auth_bytes": b"", "session_lifetime": 0}
        return [encode_reply(request, fields)]

    def _reply(self, request: Request, data: bytes, lifetime_ms: int) -> Reply:
        fields = {**error_fields(None), "auth_bytes": data, "session_lifetime": lifetime_ms}
        return [encode_reply(request, fields)]

    def _note_failure(self, user: str, why: str) -> None:
        self._endpoint.note_failed_login(self.session.host, user, why)


def first_session(
    endpoint: ListenerEndpoint | None, host: str
) -> tuple[ClientSession, Admission | None]:
    """The session of a new connection, and its admission; None: it is served at once."""
    if endpoint is None:
        return ClientSession(host=host, listener=CLIENT_LISTENER), None
    session = endpoint.logins.first_session(endpoint.settings, host)
    return session, Admission(endpoint, session) if endpoint.needs_admission else None
