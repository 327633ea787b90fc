"""A small HTTP server on the broker's event loop, for scrapes and health probes: GET and HEAD of a few pages.

Each connection has one request and is closed after its reply. No client can block the endpoint: a connection has
`REQUEST_S` to send its request and `SEND_S` to read the reply. When `CONNECTIONS_MAX` are open, the oldest that has not
sent its request is closed to make room for the next.

With a token, pages that are not public need `Authorization: Bearer` and the token. With TLS, a connection counts from
its start on, and its handshake is part of the time for the request.

It runs on the broker's own event loop on purpose: a reply shows that the loop runs, and metrics need no locks. A large
page is generated in pieces that yield to the loop (`pages.py`).
"""

import asyncio
import errno
import hmac
import logging
import ssl
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import NamedTuple, TypeAlias, cast

from respool.model.errors import SettingsError
from respool.server.http_request import (
    INTERNAL_ERROR,
    METHOD_NOT_ALLOWED,
    NOT_FOUND,
    OK,
    UNAUTHORIZED,
    UNAVAILABLE,
    HttpRequest,
    HttpRequestReader,
    HttpStatus,
)
from respool.server.tls_line import TlsLine

logger = logging.getLogger(__name__)

CONNECTIONS_MAX = 32
REQUEST_S = 5.0
SEND_S = 30.0
PLAIN_TEXT = "text/plain; charset=utf-8"
METHODS = ("GET", "HEAD")
RECEIVED_BYTES = 16 * 1024


class Page(NamedTuple):
    body: Sequence[bytes]
    status: HttpStatus = OK
    content_type: str = PLAIN_TEXT


MakePage: TypeAlias = Callable[[], Awaitable[Page]]


class _EveryTurn:
    """Handshakes of scrapes need no turns: the endpoint has few connections."""

    def reserve_s(self, host: str) -> float:
        del host
        return 0.0


class HttpEndpoint:
    def __init__(
        self,
        pages: Mapping[str, MakePage],
        *,
        token: Callable[[], bytes] | None = None,
        public: Collection[str] = (),
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        """`pages` maps paths to functions that make the pages.

        `token` returns what clients must show, except for `public` pages; None: everybody may see all. `tls` returns
        the context of the next connection; None: it is in the clear.
        """
        self._pages = pages
        self._token = token
        self._public = frozenset(public)
        self._tls = tls
        self._server: asyncio.Server | None = None
        # Open connections, in the order of arrival.
        self._connections: dict[HttpConnection, None] = {}

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen until `close`, and return the address that was bound.

        Raises:
            SettingsError: the address cannot be bound.
        """
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(self._new_protocol, host, port)
        except OSError as error:
            why = (
                "something listens there already"
                if error.errno == errno.EADDRINUSE
                else f"it cannot be listened on: {error.strerror}"
            )
            raise SettingsError(
                f"metrics_listen = {host}:{port}: {why}; choose another for metrics_listen"
            ) from error
        bound = self._server.sockets[0].getsockname()
        return bound[0], bound[1]

    def _new_protocol(self) -> asyncio.BufferedProtocol:
        connection = HttpConnection(self, is_secured=self._tls is None)
        if self._tls is None:
            return connection
        return TlsLine(connection, context=self._tls, turns=_EveryTurn())

    def close(self) -> None:
        """Stop listening and drop every connection."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in tuple(self._connections):
            connection.abort()

    # -- what connections report -------------------------------------------------------------------------------------

    def on_connected(self, connection: "HttpConnection") -> bool:
        """Return True if there is room for the connection, or room could be made."""
        if len(self._connections) >= CONNECTIONS_MAX:
            silent = next((one for one in self._connections if not one.has_request), None)
            if silent is None:
                return False
            silent.abort()
            self._connections.pop(silent, None)
        self._connections[connection] = None
        return True

    def on_disconnected(self, connection: "HttpConnection") -> None:
        self._connections.pop(connection, None)

    async def answer(self, request: HttpRequest) -> Page:
        make = self._pages.get(request.path)
        # Before anything else: without the token, a path that exists gets the same answer as one that does not.
        if not self._may_see(request):
            return text_page(
                UNAUTHORIZED, "Authorization: Bearer and the broker's token are needed"
            )
        if make is None:
            return text_page(NOT_FOUND, f"not found; there are {', '.join(self._pages)}")
        if request.method not in METHODS:
            return text_page(METHOD_NOT_ALLOWED, f"only {' and '.join(METHODS)}")
        try:
            return await make()
        except Exception:
            logger.exception("the page %s failed", request.path)
            return text_page(INTERNAL_ERROR, "failed; the broker's log has the reason")

    def _may_see(self, request: HttpRequest) -> bool:
        if self._token is None or request.path in self._public:
            return True
        return hmac.compare_digest(request.token or b"", self._token() or b"\0")


class HttpConnection(asyncio.BufferedProtocol):
    # All connections receive into one buffer: bytes are taken out of it at once.
    _received = memoryview(bytearray(RECEIVED_BYTES))

    def __init__(self, endpoint: HttpEndpoint, *, is_secured: bool) -> None:
        self._endpoint = endpoint
        self._is_secured = is_secured
        self._reader = HttpRequestReader()
        self._loop = asyncio.get_running_loop()
        self._answering: asyncio.Task[None] | None = None

    @property
    def has_request(self) -> bool:
        return self._reader.is_done

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have asyncio's interface, but not its base class.
        self._transport = cast("asyncio.Transport", transport)
        self._deadline = self._loop.call_later(REQUEST_S, self.abort)
        if self._endpoint.on_connected(self):
            return
        if not self._is_secured:
            self.abort()
        else:
            self._send(text_page(UNAVAILABLE, "too many connections"), with_body=True)

    def on_secured(self, certificate: bytes | None) -> None:
        del certificate
        self._is_secured = True

    def on_handshake_failed(self, why: str) -> None:
        logger.debug("a TLS handshake on metrics_listen failed: %s", why)

    def get_buffer(self, size_hint: int) -> memoryview:
        del size_hint
        return self._received

    def buffer_updated(self, count: int) -> None:
        data = bytes(self._received[:count])
        if self._reader.is_done or self._transport.is_closing():
            # A body or a second request: it is ignored.
            return
        self._reader.feed(data)
        if self._reader.refusal is not None:
            self._send(text_page(self._reader.refusal, "bad request"), with_body=True)
        elif self._reader.request is not None:
            self._deadline.cancel()
            self._answering = self._loop.create_task(self._answer(self._reader.request))

    def pause_writing(self) -> None:
        """A page is handed over as a whole; `SEND_S` ends a connection that does not take it."""

    def resume_writing(self) -> None:
        pass

    def connection_lost(self, error: Exception | None) -> None:
        del error
        self._deadline.cancel()
        if self._answering is not None:
            self._answering.cancel()
        self._endpoint.on_disconnected(self)

    # Called by the endpoint.

    def abort(self) -> None:
        self._transport.abort()

    async def _answer(self, request: HttpRequest) -> None:
        page = await self._endpoint.answer(request)
        self._send(page, with_body=request.method != "HEAD")

    def _send(self, page: Page, *, with_body: bool) -> None:
        # A new deadline for the reply: a client that does not read a long page must not stay forever either.
        self._deadline.cancel()
        self._deadline = self._loop.call_later(SEND_S, self.abort)
        self._transport.writelines([_head(page), *(page.body if with_body else ())])
        self._transport.close()


def text_page(status: HttpStatus, text: str) -> Page:
    return Page([f"{text}\n".encode()], status)


def _head(page: Page) -> bytes:
    lines = [
        f"HTTP/1.1 {page.status}",
        f"Content-Type: {page.content_type}",
        f"Content-Length: {sum(map(len, page.body))}",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    if page.status is METHOD_NOT_ALLOWED:
        lines.append(f"Allow: {', '.join(METHODS)}")
    if page.status is UNAUTHORIZED:
        lines.append('WWW-Authenticate: Bearer realm="respool"')
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")
