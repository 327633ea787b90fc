"""Recognises HTTP and TLS clients on the Kafka listener by the first four bytes they send.

A Kafka request begins with its size, so the first bytes of another protocol look like the size of a huge frame. Only a
size above `frame_bytes_max` is therefore compared with the table here.
"""

from typing import NamedTuple

from respool.server.http_request import BAD_REQUEST
from respool.wire.protocol_errors import FrameTooLarge, ProtocolViolation

_HTTP_METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH")
_HTTP_STARTS = {f"{method} ".encode()[:4]: method for method in _HTTP_METHODS}
# The preface of HTTP/2 is "PRI * HTTP/2.0".
_HTTP_2_START = b"PRI "
# A TLS record: content type handshake (22), then the major version 3 of SSL 3.0 to TLS 1.3.
_TLS_START = b"\x16\x03"

_REPLY_BODY = (
    b"This port speaks the Kafka protocol, not HTTP. "
    b"Metrics and health checks have a port of their own: metrics_listen.\n"
)
_HTTP_REPLY = (
    f"HTTP/1.1 {BAD_REQUEST}\r\n"
    "Content-Type: text/plain; charset=utf-8\r\n"
    f"Content-Length: {len(_REPLY_BODY)}\r\n"
    "Connection: close\r\n"
    "\r\n"
).encode("ascii") + _REPLY_BODY


class ForeignClient(NamedTuple):
    # The kind of client and a remedy, for the operator.
    reason: str
    # A reply in the client's protocol before the connection is closed; empty: none.
    reply: bytes = b""


def foreign_client_of(error: ProtocolViolation, *, metrics_listen: str) -> ForeignClient | None:
    """Return the kind of client whose first bytes are this error; None if it is not a known one."""
    if not isinstance(error, FrameTooLarge):
        return None
    return foreign_client(error.size, metrics_listen=metrics_listen)


def foreign_client(size: int, *, metrics_listen: str) -> ForeignClient | None:
    """Return the kind of client whose first frame claims `size` bytes; None if it is not a known one."""
    start = size.to_bytes(4, "big")
    method = _HTTP_STARTS.get(start)
    if method is not None:
        return ForeignClient(
            _http_reason(f"an HTTP client ({method})", metrics_listen), _HTTP_REPLY
        )
    if start == _HTTP_2_START:
        return ForeignClient(_http_reason("an HTTP/2 client", metrics_listen))
    if start.startswith(_TLS_START):
        return ForeignClient(
            "a TLS client on the Kafka listener, which does not speak TLS: "
            "set the client's security.protocol to PLAINTEXT"
        )
    return None


def _http_reason(client: str, metrics_listen: str) -> str:
    if metrics_listen:
        advice = f"metrics and health checks are served at metrics_listen = {metrics_listen}"
    else:
        advice = "set metrics_listen to serve metrics and health checks on a port of their own"
    return f"{client} on the Kafka listener, which does not speak HTTP: {advice}"
