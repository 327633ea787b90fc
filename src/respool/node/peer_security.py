"""How this broker connects to the other brokers: with the client properties of `inter_broker_config`.

Files are read for each connection, so renewed certificates are used without a restart.
"""

import ssl
import struct
from collections.abc import Awaitable, Callable

from respool.client.kafka.client_config import read_client_config
from respool.client.kafka.errors import BadArgument, ClientError
from respool.client.kafka.security import Security
from respool.drivers.tcp_peers import PeerLoginFailed, PeerSecurity
from respool.model.errors import SettingsError
from respool.model.settings import Settings
from respool.wire.api_table import Api

# API key, version, correlation id, and no client id.
_HEAD = struct.Struct(">hhih")
# SCRAM takes two rounds.
_ROUNDS_MAX = 8

Ask = Callable[[bytes], Awaitable[memoryview]]


class ClientSecurity:
    """A `PeerSecurity` made of the properties of a Kafka client."""

    def __init__(self, security: Security) -> None:
        self._security = security

    def context(self) -> ssl.SSLContext | None:
        tls = self._security.tls
        try:
            return None if tls is None else tls.context()
        except BadArgument as error:
            raise PeerLoginFailed(f"inter_broker_config: {error}") from error

    async def log_in(self, request: Ask) -> None:
        login = self._security.login
        if login is None:
            return
        name = login.mechanism.encode()
        reply = await request(_frame(Api.SASL_HANDSHAKE, struct.pack(">h", len(name)) + name))
        (code,) = struct.unpack_from(">h", reply, 4)
        if code:
            raise PeerLoginFailed(f"the peer refuses {login.mechanism}: error code {code}")
        conversation = login.begin()
        message: bytes | None = conversation.begin()
        for _ in range(_ROUNDS_MAX):
            if message is None:
                return
            body = struct.pack(">i", len(message)) + message
            reply = await request(_frame(Api.SASL_AUTHENTICATE, body))
            try:
                message = conversation.answer(_auth_bytes(reply))
            except ClientError as error:
                raise PeerLoginFailed(f"the login of {login.username!r}: {error}") from error
        raise PeerLoginFailed("the peer does not complete the login")


def _frame(api: Api, body: bytes) -> bytes:
    return _HEAD.pack(api, 1, 0, -1) + body


def _auth_bytes(reply: memoryview) -> bytes:
    """Decode a SaslAuthenticate reply of version 1.

    Raises:
        PeerLoginFailed
    """
    try:
        code, text_size = struct.unpack_from(">hh", reply, 4)
        at = 8 + max(0, text_size)
        if code:
            text = bytes(reply[8:at]).decode(errors="replace")[:200]
            raise PeerLoginFailed(f"the peer refuses this broker's login: {text} ({code})")
        (size,) = struct.unpack_from(">i", reply, at)
    except struct.error:
        raise PeerLoginFailed("the peer's reply is not a SASL reply") from None
    return bytes(reply[at + 4 : at + 4 + max(0, size)])


def peer_security_of(settings: Settings) -> PeerSecurity | None:
    """
    Raises:
        SettingsError: the file of `inter_broker_config` cannot be used, or it is missing.
    """
    path = settings.security.inter_broker_config
    between = next(one for one in settings.listeners if one.name == settings.inter_broker_listener)
    if not path:
        if between.protocol.has_tls or between.protocol.has_login:
            raise SettingsError(
                f"inter_broker_config is empty, and brokers connect by {between.protocol} to the listener "
                f"{between.name}: give a file with security.protocol, ssl.* and sasl.*"
            )
        return None
    try:
        security = read_client_config(path).security
    except ClientError as error:
        raise SettingsError(f"inter_broker_config = {path!r}: {error}") from None
    return ClientSecurity(security)
