"""What comes before the first request, where brokers ask for it: TLS around the connection, and a login on it."""

import socket
from typing import TYPE_CHECKING

from respool.client.kafka.codes import Code
from respool.client.kafka.errors import BrokerUnreachable, LoginRefused, TlsRefused
from respool.client.kafka.security import Login, Tls
from respool.client.kafka.versions import SaslApi

if TYPE_CHECKING:
    from respool.client.kafka.connection import Connection
    from respool.client.kafka.tls import TlsLine


# A broker that never comes to an end: SCRAM takes two.
_TURNS_MAX = 8


def sealed(line: socket.socket, tls: Tls, host: str) -> "TlsLine":
    """TLS around a connected socket.

    Raises:
        BadArgument: certificates of ours cannot be used.
        TlsRefused: there is no trust, or nothing in common.
        BrokerUnreachable: the connection broke meanwhile.
    """
    import ssl

    from respool.client.kafka.tls import TlsLine

    context = tls.context()
    try:
        made = TlsLine(line, context, host)
    except ValueError as error:
        # What metadata names may be anything.
        raise BrokerUnreachable(f"no certificate can be for a host {host!r}") from error
    try:
        made.shake_hands()
    except ssl.SSLEOFError as error:
        raise BrokerUnreachable(
            "it closed the connection when TLS was to begin; does it speak TLS on this port?"
        ) from error
    except ssl.SSLCertVerificationError as error:
        raise TlsRefused(
            f"the certificate is not to be trusted: {error.verify_message}. Name who signed it (ssl.truststore..., "
            "ssl.ca.location), and use a host name that it is for"
        ) from error
    except ssl.SSLError as error:
        raise TlsRefused(f"no TLS with it: {error.reason or error}") from error
    return made


def words_of_tls(error: BaseException) -> str | None:
    """Why the broker ended TLS, if that is what ended the connection: it does not take our certificate, say."""
    import ssl

    cause = error.__cause__
    if not isinstance(cause, ssl.SSLError) or isinstance(cause, ssl.SSLEOFError):
        return None
    return f"the broker ended TLS: {cause.reason or cause}"


def log_in(connection: "Connection", login: Login) -> None:
    """
    Raises:
        LoginRefused: by the broker, or by us. Where it asks for no login, no password has left.
        ConnectionLost: it broke meanwhile.
    """
    if not connection.speaks(SaslApi.SASL_HANDSHAKE):
        raise LoginRefused(
            "a login is given, and the broker knows of none on this port: was another one meant, or "
            "security.protocol without SASL?"
        )
    reply = connection.request(
        SaslApi.SASL_HANDSHAKE,
        connection.version(SaslApi.SASL_HANDSHAKE),
        {"mechanism": login.mechanism},
    )
    if reply.error_code == Code.unsupported_sasl_mechanism:
        known = ", ".join(sorted(map(str, reply.mechanisms))) or "none"
        raise LoginRefused(f"the broker does not know {login.mechanism}; it knows {known}")
    if reply.error_code:
        raise LoginRefused(f"the broker does not begin a login: Kafka's error {reply.error_code}")
    conversation = login.begin()
    version = connection.version(SaslApi.SASL_AUTHENTICATE)
    saying: bytes | None = conversation.begin()
    for _ in range(_TURNS_MAX):
        if saying is None:
            return
        reply = connection.request(SaslApi.SASL_AUTHENTICATE, version, {"auth_bytes": saying})
        if reply.error_code:
            raise LoginRefused(
                f"the broker refuses {login.username!r} by {login.mechanism}: "
                f"{(reply.error_message or f'Kafka error {int(reply.error_code)}')[:500]}"
            )
        saying = conversation.answer(bytes(reply.auth_bytes))
    raise LoginRefused("the broker does not come to an end with the login")
